"""`rem config`: values with their sources, and changes of the YAML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.rem_command import output, rem


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"REM_HOME": str(tmp_path)}


def _show(*arguments: str, settings: dict[str, str]) -> dict[str, Any]:
    return {row["name"]: row for row in json.loads(output("config", "show", *arguments, "--json", settings=settings))}


def test_environment_overrides_env_file_which_overrides_the_file(home: dict[str, str], tmp_path: Path) -> None:
    assert output("config", "path", settings=home).strip() == str(tmp_path / "config.yaml")
    for name, value in (("api.port", "81"), ("API__WORKERS", "3"), ("user", "zoe@example.com"), ("api.host", "::1")):
        assert "Set " in output("config", "set", name, value, settings=home)
    (tmp_path / "env").write_text("API__PORT=82\nAPI__WORKERS=4\n")
    settings = {**home, "REM_ENV_FILE": str(tmp_path / "env"), "API__PORT": "83"}
    shown = _show("api", settings=settings)
    sources = {name: (shown[f"api.{name}"]["value"], shown[f"api.{name}"]["source"]) for name in ("port", "workers")}
    assert sources == {"port": (83, "environment"), "workers": (4, "env file")}
    assert (shown["api.host"]["value"], shown["api.host"]["from"]) == ("::1", str(tmp_path / "config.yaml"))
    assert shown["api.reload"]["source"] == "default"
    assert _show("REM_USER", settings=home)["user"]["value"] == "zoe@example.com"
    table = rem("config", "show", settings=settings)
    assert "API__PORT" in table.stdout
    assert "api.reload" not in table.stdout
    assert "have the default: --all shows them" in table.stderr
    ignored = rem("config", "set", "api.port", "84", settings=settings)
    assert "no effect as long as API__PORT is set" in ignored.stderr


def test_secret_comes_from_standard_input_and_is_never_shown(home: dict[str, str], tmp_path: Path) -> None:
    done = rem("config", "set", "llm.openai_api_key", "-", settings=home, stdin="sk-very-secret\n")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "config.yaml"
    assert "openai_api_key: sk-very-secret" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    for arguments in (["show"], ["show", "--all"], ["show", "llm.openai_api_key", "--json"]):
        shown = output("config", *arguments, settings=home)
        assert "openai_api_key" in shown
        assert "very-secret" not in shown + done.stdout
    assert "Removed llm.openai_api_key" in output("config", "unset", "llm.openai_api_key", settings=home)
    assert "is not set" in output("config", "unset", "llm.openai_api_key", settings=home)
    assert file.read_text() == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["set", "api.prot", "1"], "There is no setting api.prot. Did you mean api.port?"),
        (["set", "api", "1"], "api is a group of settings: name one of api.host"),
        (["set", "api.port", "99999"], "api.port: Input should be less than or equal to 65535. Nothing was changed."),
        (["set", "time_zone", "Nowhere"], "there is no time zone 'Nowhere'"),
        (["set", "user", " "], "`rem config unset user` restores the default"),
        (["set", "api.cors_origins", "[x"], "is not JSON"),
        (["set", "rem_config", "x"], "set it in the environment"),
        (["show", "nothing"], "There is no setting nothing."),
    ],
)
def test_error_says_what_to_do_and_nothing_is_written(
    home: dict[str, str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = rem("config", *arguments, settings=home)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "config.yaml").exists()


def test_null_is_kept_where_it_differs_from_the_default(home: dict[str, str]) -> None:
    assert _show("audit.retention_days", settings=home)["audit.retention_days"]["value"] == 365
    output("config", "set", "audit.retention_days", "null", settings=home)
    assert _show("audit.retention_days", settings=home)["audit.retention_days"]["value"] is None


def test_embedder_of_the_vector_store_is_named_as_its_source(home: dict[str, str]) -> None:
    output("config", "set", "memory.vector_store.enabled", "false", settings=home)
    shown = _show("embedding.provider", settings=home)["embedding.provider"]
    assert (shown["value"], shown["source"]) == ("none", "memory.vector_store")
