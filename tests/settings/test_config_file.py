"""Change one setting in a YAML file: all other values stay, and the result is checked before it is written."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from rem.errors import SettingsError
from rem.settings import Settings
from rem.settings.config_file import change_config_file, remove_value, set_value

TEXT = """\
# Settings of Zoe
user: zoe@example.com   # me
memory:   # empty for now
llm:
  default_model: openai:gpt-4o # the large one

api: {port: 1, cors_origins: [a, b]}
audit: {retention_days: null}
auth:
    enabled: true
    admin_emails:
      - a@example.com
"""
VALUES = {name: value for name, value in yaml.safe_load(TEXT).items() if value is not None}


def change(path: Path, name: str, value: Any) -> bool:
    return change_config_file(path, Settings, lambda data: set_value(data, name.split("."), value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user", "anna"),
        ("memory.rag.top_k", 7),
        ("llm.default_model", "x"),
        ("llm.base_url", "a: #b"),
        ("api.host", "::1"),
        ("auth.admin_emails", ["c", "d"]),
        ("auth.enabled", False),
        ("llm.openai_api_key", "line\nbreak"),
        ("log.format", "json"),
    ],
)
def test_only_the_value_of_the_setting_changes(tmp_path: Path, name: str, value: Any) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(TEXT)
    assert change(path, name, value)
    group, *rest = name.split(".")
    expected: Any = value
    if rest:
        expected = VALUES.get(group, {}) | ({rest[0]: value} if len(rest) == 1 else {rest[0]: {rest[1]: value}})
    assert yaml.safe_load(path.read_text()) == VALUES | {group: expected}
    assert not change(path, name, value)


def test_removing_a_setting_removes_the_group_that_becomes_empty(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(TEXT)
    assert not change_config_file(path, Settings, lambda data: remove_value(data, ("memory", "rag", "top_k")))
    assert path.read_text() == TEXT
    assert change_config_file(path, Settings, lambda data: remove_value(data, ("llm", "default_model")))
    assert yaml.safe_load(path.read_text()) == {name: value for name, value in VALUES.items() if name != "llm"}


@pytest.mark.parametrize("text", ["", "# only a comment", "---\n", "{}\n", "user: a", "user: a\r\nllm:\r\n"])
def test_setting_is_added_to_any_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    assert change(path, "memory.rag.top_k", 3) == ("#" in text)
    user = {"user": "a"} if "user" in text else {}
    assert yaml.safe_load(path.read_text()) == {**user, "memory": {"rag": {"top_k": 3}}}


def test_value_that_two_groups_share_changes_in_one(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("rate_limit: &x {enabled: true}\naudit: *x\n")
    change(path, "rate_limit.enabled", False)
    assert yaml.safe_load(path.read_text()) == {"rate_limit": {"enabled": False}, "audit": {"enabled": True}}


def test_name_that_is_given_twice_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("user: zoe\nuser: anna\n")
    with pytest.raises(SettingsError, match="line 2"):
        change(path, "api.port", 1)
    assert path.read_text() == "user: zoe\nuser: anna\n"


def test_file_is_private_new_text_is_checked_and_a_link_stays(tmp_path: Path) -> None:
    real, path = tmp_path / "dotfiles" / "rem.yaml", tmp_path / "config.yaml"
    path.symlink_to(real)
    change(path, "user", "zoe")
    assert path.is_symlink()
    assert real.read_text() == "user: zoe\n"
    assert real.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SettingsError, match=r"config\.yaml: api\.port: Input should be"):
        change(path, "api.port", "many")
    assert real.read_text() == "user: zoe\n"
    assert list(real.parent.iterdir()) == [real]


def test_broken_file_is_named_with_its_line_and_a_bad_value_can_be_repaired(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("user: zoe\nllm: [\n")
    with pytest.raises(SettingsError, match=r"config\.yaml, line 3: not valid YAML"):
        change(path, "user", "anna")
    path.write_text("user: zoe\napi: {port: many}\n")
    change(path, "api.port", 80)
    assert yaml.safe_load(path.read_text()) == {"user": "zoe", "api": {"port": 80}}


def test_concurrent_changes_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    values = {"postgres.enabled": True, "api.port": 1, "api.workers": 2, "api.reload": False, "api.host": "h"}
    threads = [threading.Thread(target=change, args=(path, name, value)) for name, value in values.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert yaml.safe_load(path.read_text()) == {
        "postgres": {"enabled": True},
        "api": {"port": 1, "workers": 2, "reload": False, "host": "h"},
    }
