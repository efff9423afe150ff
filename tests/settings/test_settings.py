"""Settings from the environment and the config file: unknown names are errors, empty values mean the default."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from rem.context import Scope
from rem.errors import InvalidInputError, SettingsError
from rem.settings import RagSettings, Settings, describe_ignored_files, get_settings, list_ignored_variables
from tests.test_docs import DOCS, read_example


@pytest.fixture(autouse=True)
def clear_settings_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Read the settings again in each test, without the .env of the current folder."""
    monkeypatch.chdir(tmp_path)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the config file that REM_CONFIG names."""
    path = tmp_path / "rem.yaml"
    monkeypatch.setenv("REM_CONFIG", str(path))
    return path


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


def test_named_env_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("API__PORT=9123\nSOMETHING_ELSE=1\n", encoding="utf-8")
    monkeypatch.setenv("REM_ENV_FILE", ".env")
    assert get_settings().api.port == 9123
    assert describe_ignored_files() == []


def test_named_env_file_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REM_ENV_FILE", "nowhere.env")
    with pytest.raises(SettingsError, match=r"REM_ENV_FILE: there is no file .*nowhere\.env"):
        get_settings()


def test_error_names_an_env_file_that_is_not_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_bytes(b"API__PORT=\xff\xfe")
    assert (get_settings().api.port, describe_ignored_files()) == (8000, [])
    get_settings.cache_clear()
    monkeypatch.setenv("REM_ENV_FILE", ".env")
    with pytest.raises(SettingsError, match=r"REM_ENV_FILE names is not UTF-8"):
        get_settings()


def test_files_of_an_untrusted_folder_cannot_send_the_memory_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "rem.yaml").write_text("llm: {base_url: 'http://203.0.113.7/v1'}\n", encoding="utf-8")
    (tmp_path / ".env").write_text("POSTGRES__CONNECTION_STRING=postgresql://203.0.113.7/x\n", encoding="utf-8")
    settings = get_settings()
    assert (settings.llm.base_url, settings.postgres.connection_string) == (None, None)
    warnings = describe_ignored_files()
    assert [warning.split("If you trust it: ")[1] for warning in warnings] == [
        "REM_CONFIG=rem.yaml",
        "REM_ENV_FILE=.env",
    ]


def test_env_file_of_another_program_is_no_reason_for_a_warning(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("DATABASE_URL=x\nAIRFLOW__CORE__KEY=1\n", encoding="utf-8")
    assert describe_ignored_files() == []


def test_time_zone_is_utc_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert get_settings().time_zone == UTC
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert str(Settings(rem_time_zone="local").time_zone) == "Asia/Tokyo"
    assert str(Settings(rem_time_zone="Europe/Ljubljana").time_zone) == "Europe/Ljubljana"
    assert Settings(rem_time_zone="Asia/Tokyo").now().utcoffset() == timedelta(hours=9)


@pytest.mark.parametrize("name", ["Europe/Atlantis", "../../etc/passwd", "/etc/localtime", "x\0y"])
def test_unknown_time_zone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "zone.yaml").write_text(f"time_zone: {json.dumps(name)}\n", encoding="utf-8")
    monkeypatch.setenv("REM_CONFIG", "zone.yaml")
    with pytest.raises(SettingsError, match="there is no time zone"):
        get_settings()


DIRECTORY = "11111111-2222-4333-8444-555555555555"


@pytest.mark.parametrize(
    ("written", "tenant", "has_own_directory"),
    [
        ("Common", "common", False),
        (" ORGANIZATIONS\n", "organizations", False),
        ("consumers", "consumers", False),
        (f" {DIRECTORY.upper().replace('1', 'A')} ", DIRECTORY.replace("1", "a"), True),
        ("Contoso.OnMicrosoft.com", "contoso.onmicrosoft.com", True),
    ],
)
def test_tenant_of_microsoft_is_normalised(
    monkeypatch: pytest.MonkeyPatch, written: str, tenant: str, has_own_directory: bool
) -> None:
    monkeypatch.setenv("AUTH__MICROSOFT__TENANT", written)
    monkeypatch.setenv("AUTH__MICROSOFT__AUTHORITY", "https://Login.MicrosoftOnline.com")
    microsoft = get_settings().auth.microsoft
    assert (microsoft.tenant, microsoft.has_own_directory) == (tenant, has_own_directory)
    assert microsoft.authority == "https://login.microsoftonline.com"


@pytest.mark.parametrize(
    "tenant",
    [
        *(" ", "commom", "common/", "common\u200b", "\uff43ommon", "all", "..", "a..b", "-a.com", "a.com-", "a.com."),
        *(
            "127.0.0.1",
            f"{{{DIRECTORY}}}",
            f"urn:uuid:{DIRECTORY}",
            DIRECTORY.replace("-", ""),
            "a/b.com",
            "a" * 64 + ".com",
        ),
    ],
)
def test_other_tenant_of_microsoft_is_refused(monkeypatch: pytest.MonkeyPatch, tenant: str) -> None:
    monkeypatch.setenv("AUTH__MICROSOFT__TENANT", tenant)
    with pytest.raises(SettingsError, match=r"AUTH__MICROSOFT__TENANT.*not a directory of Microsoft"):
        get_settings()


def test_email_address_becomes_a_user_id() -> None:
    assert Scope.for_user(" Alice@Example.com ").user_id == "edabafbb-61ad-51d6-9fd8-e976c892a731"
    assert Scope.for_user("some-id").user_id == "some-id"


@pytest.mark.parametrize("user", ["", "   ", "x" * 256, "a\0b", "\ud800"])
def test_invalid_user_is_refused(user: str) -> None:
    with pytest.raises(InvalidInputError):
        Scope.for_user(user)


SEED_BLOCK = """
memory:
  enabled: true
  storage_path: {folder}/memory.db
  max_history_tokens: 5000
  auto_prune_days: 30
  strategy: hybrid
  vector_store:
    enabled: true
    embedding_model: nomic-embed-text
    embedding_provider: ollama
  rag:
    enabled: true
    top_k: 7
    min_similarity: 0.7
"""


def test_config_file_sets_the_whole_memory_block(tmp_path: Path, config_file: Path) -> None:
    config_file.write_text(SEED_BLOCK.format(folder=tmp_path) + "user: sarah@example.com\n", encoding="utf-8")
    settings = get_settings()
    memory = settings.memory
    assert (memory.enabled, memory.max_history_tokens, memory.auto_prune_days) == (True, 5000, 30)
    assert (memory.strategy, memory.storage_path) == ("hybrid", tmp_path / "memory.db")
    assert (memory.rag.enabled, memory.rag.top_k, memory.rag.min_similarity) == (True, 7, 0.7)
    assert (settings.embedding.provider, settings.embedding.model) == ("ollama", "nomic-embed-text")
    assert settings.rem_user == "sarah@example.com"
    assert settings.rem_config == config_file


def test_vector_store_can_be_switched_off_in_the_config_file(config_file: Path) -> None:
    config_file.write_text("memory: {vector_store: {enabled: false}}\n", encoding="utf-8")
    assert get_settings().embedding.provider == "none"


def test_environment_overrides_env_file_and_config_file(
    tmp_path: Path, config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_file.write_text(
        "api: {port: 1, workers: 2, host: 0.0.0.0}\nmemory: {vector_store: {embedding_provider: ollama}}\n",
        encoding="utf-8",
    )
    (tmp_path / ".env").write_text("API__PORT=3\nAPI__WORKERS=3\n", encoding="utf-8")
    monkeypatch.setenv("REM_ENV_FILE", ".env")
    monkeypatch.setenv("API__PORT", "4")
    monkeypatch.setenv("EMBEDDING__PROVIDER", "none")
    api = get_settings().api
    assert (api.port, api.workers, api.host) == (4, 3, "0.0.0.0")
    assert get_settings().embedding.provider == "none"


def test_config_file_is_named_or_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, named = tmp_path / "home", tmp_path / "named.yaml"
    home.mkdir()
    monkeypatch.setenv("REM_HOME", str(home))
    assert get_settings().rem_config is None
    for path, user in ((home / "config.yaml", "of-home"), (named, "of-named")):
        path.write_text(f"user: {user}\n", encoding="utf-8")
        if path == named:
            monkeypatch.setenv("REM_CONFIG", str(named))
        get_settings.cache_clear()
        assert (get_settings().rem_user, get_settings().rem_config) == (user, path)


def test_named_config_file_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REM_CONFIG", "nowhere.yaml")
    with pytest.raises(SettingsError, match=r"REM_CONFIG: there is no file .*nowhere\.yaml"):
        get_settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("memry:\n  enabled: true\n", r"line 1: there is no setting memry\. Did you mean memory\?"),
        ("memory:\n  rag:\n    topk: 5\n", r"line 3: there is no setting memory\.rag\.topk\. Did you mean top_k\?"),
        ("rem_user: sam\n", r"line 1: there is no setting rem_user\. Did you mean user\?"),
        ("config: other.yaml\n", r"there is no setting config\."),
        ("memory: {rag: {top_k: many}}\n", r"rem\.yaml: memory\.rag\.top_k: .*valid integer"),
        ("memory: 5\n", "memory must contain names with values"),
        ("- memory\n", "the file must contain names with values"),
        ("user: a\nuser: b\n", "line 2: user is given twice"),
        ("memory: {\n", "not valid YAML"),
        ("\0", r"line 1: not valid YAML: remove the control character U\+0000"),
        ("user: a\n# \x1b[1m\n", r"line 2: not valid YAML: remove the control character U\+001B"),
        ("user: !!python/name:os.system\n", "not valid YAML"),
        ("memory:\n" + "  " * 50 + "x: [" + "[" * 2000 + "\n", "not valid YAML"),
        ("x" * 300_000, "longer than 256 KB"),
        ("memory: {storage_path: rem.yaml}\n", "rem.yaml is a file, and REM needs a folder.*rem sessions import"),
    ],
)
def test_mistake_in_the_config_file_is_named(config_file: Path, text: str, message: str) -> None:
    config_file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=message):
        get_settings()


def test_config_file_that_is_not_utf8_is_refused(config_file: Path) -> None:
    config_file.write_bytes(b"user: \xff")
    with pytest.raises(SettingsError, match=r"rem\.yaml: not UTF-8 text"):
        get_settings()


def test_empty_config_file_and_empty_groups_mean_the_defaults(config_file: Path) -> None:
    config_file.write_text("# nothing yet\nmemory:\nuser:\napi: {port: null}\n", encoding="utf-8")
    settings = get_settings()
    assert (settings.memory.enabled, settings.rem_user, settings.api.port) == (True, None, 8000)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("SERACH__LANGUAGE", "SEARCH__LANGUAGE"), ("POSTGRE__ENABLED", "POSTGRES__ENABLED"), ("REM_USR", "REM_USER")],
)
def test_misspelt_group_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, meant: str) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(SettingsError, match=rf"{name}: there is no such setting \(did you mean {meant}\?\)"):
        get_settings()


def test_misspelt_group_in_the_env_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("MEMROY__ENABLED=false\n", encoding="utf-8")
    monkeypatch.setenv("REM_ENV_FILE", ".env")
    with pytest.raises(SettingsError, match="MEMROY__ENABLED"):
        get_settings()


def test_variables_of_other_programs_are_listed_but_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "x")
    get_settings()
    assert "AIRFLOW__CORE__FERNET_KEY" in list_ignored_variables()


def test_example_in_the_docs_is_valid(config_file: Path) -> None:
    config_file.write_text(read_example(DOCS / "settings.md", "config"), encoding="utf-8")
    settings = get_settings()
    assert (settings.rem_user, settings.memory.auto_prune_days) == ("sarah@example.com", 30)
    assert settings.memory.rag == RagSettings(enabled=True)
