"""Change one setting in a YAML text: only its characters change, and the result is checked before it is written."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from rem.errors import SettingsError
from rem.settings import Settings
from rem.settings.config_editor import change_file, find_value, remove_value, set_value

TEXT = """\
# Settings of Zoe
user: zoe@example.com   # me
memory:   # empty for now
llm:
  default_model: openai:gpt-4o # the large one
  # under the model

# the server
api: {port: 1, cors_origins: [a, b]}
auth:
    enabled: true
    admin_emails:
      - a@example.com
      - b@example.com
    # after the list
"""


@pytest.mark.parametrize(
    ("path", "value", "before", "after"),
    [
        ("user", "anna", "user: zoe@example.com   # me", "user: anna   # me"),
        ("memory.rag.top_k", 7, "memory:   # empty for now\n", "memory:   # empty for now\n  rag:\n    top_k: 7\n"),
        ("llm.default_model", "x", "openai:gpt-4o # the large one", "x # the large one"),
        ("llm.base_url", "a: #b", "# the large one\n", "# the large one\n  base_url: 'a: #b'\n"),
        ("api.port", 2, "{port: 1,", "{port: 2,"),
        ("api.host", "::1", "{port", "{host: '::1', port"),
        ("auth.admin_emails", ["c"], "- a@example.com\n      - b@example.com\n", "[c]\n"),
        ("auth.enabled", False, "enabled: true", "enabled: false"),
        (
            "llm.openai_api_key",
            "line\nbreak",
            "# the large one\n",
            '# the large one\n  openai_api_key: "line\\nbreak"\n',
        ),
        ("audit.retention_days", None, "# after the list\n", "# after the list\n"),
    ],
)
def test_only_the_setting_changes(path: str, value: Any, before: str, after: str) -> None:
    changed = set_value(TEXT, path.split("."), value)
    if value is not None:
        assert changed == TEXT.replace(before, after, 1)
    assert find_value(changed, path.split(".")) == value
    assert changed.count("#") == TEXT.count("#") + str(value).count("#")


@pytest.mark.parametrize(
    ("path", "removed"),
    [
        ("user", "user: zoe@example.com   # me\n"),
        ("llm.default_model", "llm:\n  default_model: openai:gpt-4o # the large one\n"),
        ("auth.admin_emails", "    admin_emails:\n      - a@example.com\n      - b@example.com\n"),
        ("api.port", "port: 1, "),
        ("memory.rag.top_k", ""),
    ],
)
def test_removing_takes_the_lines_of_the_setting_alone(path: str, removed: str) -> None:
    assert remove_value(TEXT, path.split(".")) == TEXT.replace(removed, "", 1)


@pytest.mark.parametrize("text", ["", "# only a comment", "---\n", "{}\n", "user: a", "user: a\r\nllm:\r\n"])
def test_setting_is_added_to_any_text(text: str) -> None:
    changed = set_value(text, ("memory", "rag", "top_k"), 3)
    assert yaml.safe_load(changed)["memory"] == {"rag": {"top_k": 3}}
    assert all(line in changed for line in text.splitlines() if line.strip() not in ("{}", ""))


def test_what_cannot_be_changed_safely_is_left_to_the_user() -> None:
    with pytest.raises(SettingsError, match="edit the file yourself"):
        set_value("llm: &x {base_url: a}\nmemory: *x\n", ("llm", "base_url"), "b")


def test_file_is_private_new_text_is_checked_and_a_link_stays(tmp_path: Path) -> None:
    real, path = tmp_path / "dotfiles" / "rem.yaml", tmp_path / "config.yaml"
    path.symlink_to(real)
    change_file(path, Settings, lambda text: set_value(text, ("user",), "zoe"))
    assert path.is_symlink()
    assert real.read_text() == "user: zoe\n"
    assert real.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SettingsError, match=r"config\.yaml: api\.port: Input should be"):
        change_file(path, Settings, lambda text: set_value(text, ("api", "port"), "many"))
    assert real.read_text() == "user: zoe\n"
    assert list(real.parent.iterdir()) == [real]


def test_broken_file_is_named_with_its_line_and_a_bad_value_can_be_repaired(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("user: zoe\nllm: [\n")
    with pytest.raises(SettingsError, match=r"config\.yaml, line 3: not valid YAML"):
        change_file(path, Settings, lambda text: set_value(text, ("user",), "anna"))
    path.write_text("user: zoe\napi: {port: many}\n")
    change_file(path, Settings, lambda text: set_value(text, ("api", "port"), 80))
    assert path.read_text() == "user: zoe\napi: {port: 80}\n"


def test_concurrent_changes_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    names = ["enabled", "port", "workers", "reload", "host"]
    values: list[Any] = [True, 1, 2, False, "h"]
    groups = ["postgres", "api", "api", "api", "api"]

    def change(group: str, name: str, value: Any) -> None:
        change_file(path, Settings, lambda text: set_value(text, (group, name), value))

    threads = [threading.Thread(target=change, args=item) for item in zip(groups, names, values, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert yaml.safe_load(path.read_text()) == {
        "postgres": {"enabled": True},
        "api": {"port": 1, "workers": 2, "reload": False, "host": "h"},
    }
