"""The files for containers and Kubernetes: valid for the cluster, safe by default, and in step with REM's settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from typer.testing import CliRunner

from rem.api.main import create_app
from rem.app import Rem
from rem.cli.main import app
from rem.jobs.queue import JobQueue
from rem.settings import MetricsSettings, Settings
from tests.api.live_server import client, served
from tests.cli.test_serve import serving

REPOSITORY = Path(__file__).parent.parent
MANIFESTS = sorted((REPOSITORY / "manifests").rglob("*.yaml"))
KUBERNETES_VERSION = "1.34"
NOT_OF_KUBERNETES = ("kustomize.config.k8s.io/", "monitoring.coreos.com/", "postgresql.cnpg.io/")
COMPOSE = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())


def list_objects() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each object of the manifests with a name for messages."""
    for path in MANIFESTS:
        for document in yaml.safe_load_all(path.read_text()):
            yield f"{path.name}: {document['kind']}", document


def list_pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pod template of each workload."""
    for name, document in list_objects():
        if document["kind"] in ("Deployment", "Job"):
            yield name, document["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(document, id=name)
        for name, document in list_objects()
        if not document["apiVersion"].startswith(NOT_OF_KUBERNETES)
    ],
)
def test_manifest_is_valid_for_kubernetes(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, KUBERNETES_VERSION, strict=True)


def test_kustomizations_name_every_file() -> None:
    for path in MANIFESTS:
        if path.name == "kustomization.yaml":
            kustomization = yaml.safe_load(path.read_text())
            named = {*kustomization["resources"]}
            named |= {file for generated in kustomization.get("configMapGenerator", ()) for file in generated["files"]}
            assert named == {other.name for other in path.parent.iterdir() if other.is_file()} - {path.name}


@pytest.mark.parametrize("pod", [pytest.param(pod, id=name) for name, pod in list_pods()])
def test_pods_run_without_privileges(pod: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod.get("serviceAccountName") == "rem" or pod["automountServiceAccountToken"] is False
    for container in pod["containers"]:
        security = container["securityContext"]
        assert security == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("component", ["api", "worker"])
def test_pods_wait_longer_than_their_shutdown_takes(component: str) -> None:
    settings = get_config_map()
    pod = next(pod for name, pod in list_pods() if name.startswith(f"{component}.yaml"))
    group = {"api": "API", "worker": "WORKER"}[component]
    assert pod["terminationGracePeriodSeconds"] > float(settings[f"{group}__SHUTDOWN_SECONDS"]) + 5


def get_config_map() -> dict[str, str]:
    """Return the settings of the pods that are not secret."""
    (data,) = [document["data"] for name, document in list_objects() if name == "settings.yaml: ConfigMap"]
    return dict(data)


@pytest.mark.parametrize(
    ("source", "variables"),
    [("settings.yaml", get_config_map()), ("compose.yaml", COMPOSE["x-rem"]["environment"])],
)
def test_settings_are_known_to_rem(source: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, re.sub(r"\$\{.*?\}", "0" * 64, value))
    settings = Settings()
    assert settings.auth.enabled, source
    assert settings.worker.in_process is False, source


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            container["args"]
            for _, pod in list_pods()
            for container in pod["containers"]
            if container["image"] == "rem"
        ),
        *(service["command"] for service in COMPOSE["services"].values() if "command" in service),
    ],
)
def test_commands_of_containers_exist(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, [*arguments, "--help"])
    assert result.exit_code == 0, result.output


def test_compose_keeps_secrets_out_of_the_file() -> None:
    text = (REPOSITORY / "compose.yaml").read_text()
    assert "${POSTGRES_PASSWORD:?" in text
    assert "${AUTH__SESSION_SECRET:?" in text
    for name in ("api", "migrate", "worker"):
        service = COMPOSE["services"][name]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]


@pytest.mark.parametrize("source", ["compose.yaml", "settings.yaml"])
def test_api_starts_with_the_settings_of_the_containers(source: str, dsn: str, sql: object) -> None:
    assert sql is not None
    text = (REPOSITORY / "Dockerfile").read_text()
    image = dict(re.findall(r"\b(API__\w+)=(\S+)", text))
    given = COMPOSE["x-rem"]["environment"] if source == "compose.yaml" else get_config_map()
    secrets = {"AUTH__SESSION_SECRET": "0" * 64, "METRICS__TOKEN": "1" * 64, "POSTGRES__CONNECTION_STRING": dsn}
    with serving(settings={**image, **given, **secrets}) as (address, _):
        assert address.startswith("http://127.0.0.1:")


def test_image_installs_the_locked_versions_and_does_not_run_as_root() -> None:
    lines = (REPOSITORY / "Dockerfile").read_text()
    assert "--constraint requirements.lock" in lines
    assert re.search(r"^USER 10001$", lines, re.MULTILINE)
    extras = re.search(r"'\.\[(.*?)\]'", lines)
    assert extras is not None
    project = (REPOSITORY / "pyproject.toml").read_text()
    for extra in extras[1].split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", lines, re.MULTILINE)
    allowed = (REPOSITORY / ".dockerignore").read_text()
    for name in " ".join(copied).split():
        assert f"!{name}\n" in allowed, name


def read_promql() -> list[tuple[str, str]]:
    """Return each query of the dashboard and each condition of an alert, with its title."""
    folder = REPOSITORY / "manifests" / "telemetry" / "prometheus"
    dashboard = json.loads((folder / "dashboard.json").read_text())
    queries = [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel["targets"]]
    return queries + [(alert["alert"], alert["expr"]) for alert in list_alerts()]


def list_alerts() -> list[dict[str, Any]]:
    """Return the rules of Prometheus."""
    (rules,) = [document for name, document in list_objects() if name == "alerts.yaml: PrometheusRule"]
    return [rule for group in rules["spec"]["groups"] for rule in group["rules"]]


async def test_dashboard_and_alerts_use_metrics_and_labels_that_exist(settings: Settings, rem: Rem) -> None:
    await JobQueue(rem.database).enqueue("unknown-kind", {})
    update = {"metrics": MetricsSettings(enabled=True)}
    async with served(create_app(settings.model_copy(update=update))) as address, client(address) as http:
        await http.get("/health/live")
        text = (await http.get("/metrics")).text
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    for title, promql in read_promql():
        names = re.findall(r"\brem_\w+", promql)
        assert names, title
        for name in names:
            base = name.removesuffix("_bucket")
            assert base in types, f"{title}: {name}"
            assert (types[base] == "histogram") == name.endswith("_bucket"), f"{title}: {name}"


def test_each_alert_has_a_runbook_with_checks_and_fixes() -> None:
    page = (REPOSITORY / "docs" / "runbooks.md").read_text()
    sections = dict(re.findall(r"^## (\w+)$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    alerts = {alert["alert"]: alert for alert in list_alerts()}
    assert list(sections) == list(alerts)
    for name, section in sections.items():
        assert alerts[name]["annotations"]["runbook"] == f"docs/runbooks.md#{name.lower()}"
        for part in ("**Users notice:**", "**Check:**", "**Fix:**"):
            assert part in section, name
