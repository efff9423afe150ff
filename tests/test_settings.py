"""Settings from the environment: unknown names are errors, empty values mean the default."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rem.context import Scope
from rem.errors import InvalidInputError, SettingsError
from rem.settings import Settings, get_settings


@pytest.fixture(autouse=True)
def clear_settings_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Read the settings again in each test, without the .env of the current folder."""
    monkeypatch.chdir(tmp_path)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.mark.parametrize("name", ["POSTGRES__CONECTION_STRING", "API__PROT", "EMBEDDING__SIZE"])
def test_unknown_setting_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(SettingsError, match=f"{name}: there is no such setting"):
        get_settings()


def test_empty_variable_means_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REM_HOME", "")
    monkeypatch.setenv("POSTGRES__CONNECTION_STRING", "")
    monkeypatch.setenv("API__PORT", "")
    settings = get_settings()
    assert settings.rem_home == Path("~/.rem").expanduser()
    assert settings.postgres.connection_string is None
    assert settings.api.port == 8000


def test_relative_home_is_resolved_in_the_current_folder(tmp_path: Path) -> None:
    assert Settings(rem_home=Path("memory")).rem_home == tmp_path / "memory"


def test_env_file_of_the_current_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("API__PORT=9123\nSOMETHING_ELSE=1\n", encoding="utf-8")
    assert get_settings().api.port == 9123


def test_error_names_an_env_file_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"API__PORT=\xff\xfe")
    with pytest.raises(SettingsError, match=r"\.env is not UTF-8"):
        get_settings()


def test_email_address_becomes_a_user_id() -> None:
    assert Scope.for_user(" Alice@Example.com ").user_id == "edabafbb-61ad-51d6-9fd8-e976c892a731"
    assert Scope.for_user("some-id").user_id == "some-id"


@pytest.mark.parametrize("user", ["", "   ", "x" * 256, "a\0b", "\ud800"])
def test_invalid_user_is_refused(user: str) -> None:
    with pytest.raises(InvalidInputError):
        Scope.for_user(user)
