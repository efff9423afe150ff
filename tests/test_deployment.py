"""The files for containers and Kubernetes: valid for the cluster, safe by default, and in step with REM's settings."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
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


CHOSEN = {"INGRESS_NETWORK": "10.42.3.0/24", "API__TRUSTED_PROXIES": "[]"}
"""What an operator fills in; any other variable is a secret."""


def fill_in(variables: dict[str, str]) -> dict[str, str]:
    """Return settings with a value for each variable in them."""
    return {
        name: re.sub(r"\$\{(\w+).*?\}", lambda variable: CHOSEN.get(variable[1], "0" * 64), value)
        for name, value in variables.items()
    }


@pytest.mark.parametrize(
    ("source", "variables"),
    [("settings.yaml", get_config_map()), ("compose.yaml", COMPOSE["x-rem"]["environment"])],
)
def test_settings_are_known_to_rem(source: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in fill_in(variables).items():
        monkeypatch.setenv(name, value)
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
    given = fill_in(COMPOSE["x-rem"]["environment"] if source == "compose.yaml" else get_config_map())
    secrets = {"AUTH__SESSION_SECRET": "0" * 64, "METRICS__TOKEN": "1" * 64, "POSTGRES__CONNECTION_STRING": dsn}
    with serving(settings={**image, **given, **secrets}) as (address, _):
        assert address.startswith("http://127.0.0.1:")


def test_proxies_of_the_ingress_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API__TRUSTED_PROXIES", get_config_map()["API__TRUSTED_PROXIES"])
    with pytest.raises(ValueError, match=r"INGRESS_NETWORK.*is not an IP address or a network"):
        Settings()


def test_no_file_trusts_a_whole_private_network() -> None:
    for path in (*MANIFESTS, REPOSITORY / "compose.yaml", REPOSITORY / "Dockerfile"):
        for line in path.read_text().splitlines():
            assert "TRUSTED_PROXIES" not in line or "/8" not in line, path.name


@pytest.mark.parametrize("name", sorted(COMPOSE["services"]))
def test_services_of_compose_have_a_limit_of_memory(name: str) -> None:
    assert re.fullmatch(r"[0-9]+[mg]", COMPOSE["services"][name]["mem_limit"])


def list_images() -> list[str]:
    """Return the images that the files for containers name, except REM's own, which is built from this repository."""
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    images = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    images += [service["image"] for service in COMPOSE["services"].values()]
    images += [container["image"] for _, pod in list_pods() for container in pod["containers"]]
    images += [document["spec"]["imageName"] for _, document in list_objects() if document["kind"] == "Cluster"]
    return sorted({image for image in images if image != "rem"})


def test_images_are_pinned_by_digest() -> None:
    images = list_images()
    assert len(images) == 4
    for image in images:
        assert re.fullmatch(r"[a-z0-9./-]+:[\w.-]+@sha256:[0-9a-f]{64}", image), image


def test_make_images_renews_the_digests(tmp_path: Path) -> None:
    for name in ("Makefile", "Dockerfile", "compose.yaml"):
        shutil.copy(REPOSITORY / name, tmp_path)
    shutil.copytree(REPOSITORY / "manifests", tmp_path / "manifests")
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho sha256:{"b" * 64}\n')
    docker.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["make", "images"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    asked = (tmp_path / "asked").read_text()
    for image in list_images():
        tag, _, digest = image.partition("@")
        assert f"{tag}\n" in asked
        texts = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
        assert any(f"{tag}@sha256:{'b' * 64}" in text for text in texts), tag
        assert not any(digest in text for text in texts), tag


def read_pins(name: str) -> dict[str, set[str]]:
    """Return the hashes of each requirement of a lock file."""
    pins: dict[str, set[str]] = {}
    for entry in re.split(r"\n(?=[a-zA-Z0-9])", (REPOSITORY / name).read_text()):
        requirement = entry.partition(" \\\n")[0]
        pins[re.sub(r"\[.*?\]", "", requirement)] = set(
            re.findall(r"^    --hash=(sha256:[0-9a-f]{64})", entry, re.MULTILINE)
        )
    return pins


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-image.lock"])
def test_locked_files_have_versions_and_hashes_and_no_address(name: str) -> None:
    pins = read_pins(name)
    assert len(pins) > 100
    for requirement, hashes in pins.items():
        assert re.match(r"[\w.-]+==[^\s*]+( ; .+)?$", requirement), requirement
        assert hashes, requirement
    text = (REPOSITORY / name).read_text()
    assert "://" not in text
    assert " @ " not in text


def test_image_has_the_versions_that_the_tests_use() -> None:
    locked = {(name.partition(" ;")[0], frozenset(hashes)) for name, hashes in read_pins("requirements.lock").items()}
    image = {
        (name.partition(" ;")[0], frozenset(hashes)) for name, hashes in read_pins("requirements-image.lock").items()
    }
    assert image <= locked


def test_build_backend_is_pinned_and_locked() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    (backend,) = project["build-system"]["requires"]
    assert re.fullmatch(r"hatchling==[\d.]+", backend)
    assert project["dependency-groups"]["build"] == [backend]
    assert backend in read_pins("requirements-image.lock")


def test_image_has_each_dependency_of_its_extras() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = re.search(r"^IMAGE_EXTRAS := (.*)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert extras is not None
    wanted = [
        *project["dependencies"],
        *(line for extra in extras[1].split() for line in project["optional-dependencies"][extra]),
    ]
    locked = {name.partition("==")[0] for name in read_pins("requirements-image.lock")}
    names = {re.match(r"[\w.-]+", line)[0].lower().replace(".", "-") for line in wanted}  # type: ignore[index]
    assert names <= locked


def test_image_installs_the_locked_files_and_does_not_run_as_root() -> None:
    lines = (REPOSITORY / "Dockerfile").read_text()
    installs = re.findall(r"pip install (.*?)(?: \\)?$", lines, re.MULTILINE)
    assert [("--require-hashes" in install, "--no-index" in install) for install in installs] == [
        (True, False),
        (False, True),
    ]
    assert re.search(r"^USER 10001$", lines, re.MULTILINE)
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
