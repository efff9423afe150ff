"""The settings select the embedder, and errors say what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import SecretStr

from rem.errors import EmbeddingDisabledError, EmbeddingError, EmbeddingMisconfiguredError
from rem.search import embedder_factory as factory
from rem.search.embedder_factory import list_providers, open_embedder
from rem.settings import EmbeddingSettings, Settings
from tests.rem_command import output, rem


def _settings(**wanted: object) -> Settings:
    return Settings(rem_home=Path("/nowhere"), embedding=EmbeddingSettings.model_validate(wanted))


@pytest.mark.parametrize("provider", ["auto", "local"])
async def test_model_of_the_package_is_the_default(provider: str) -> None:
    embedder = open_embedder(_settings(provider=provider))
    assert (embedder.model, embedder.dimension) == ("rem-embed-2", 384)
    question, answer, other = await embedder.embed(
        ["What car do I drive?", "I bought a used Toyota last week.", "The recipe needs three eggs."]
    )
    assert question @ answer > question @ other + 0.2
    await embedder.close()


async def test_model_of_the_package_can_be_selected() -> None:
    embedder = open_embedder(_settings(model="rem-embed-2"))
    assert embedder.model == "rem-embed-2"
    await embedder.close()
    (status,) = [status for status in await list_providers(_settings(model="rem-embed-2")) if status.chosen]
    assert (status.model, status.note) == ("rem-embed-2", "part of the package")


async def test_none_raises_instead_of_inventing_vectors() -> None:
    embedder = open_embedder(_settings(provider="none"))
    for call in (embedder.embed(["text"]), embedder.embed_one("text")):
        with pytest.raises(EmbeddingDisabledError, match="EMBEDDING__PROVIDER=none"):
            await call
    await embedder.close()


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"provider": "local", "model": "all-MiniLM-L6-v2"}, "rem-embed-2, not .*unset EMBEDDING__MODEL"),
        (
            {"provider": "local", "dimension": 768},
            "384 dimensions, and EMBEDDING__DIMENSION is 768: set EMBEDDING__DIMENSION=384",
        ),
        ({"provider": "auto", "dimension": 768}, "set EMBEDDING__DIMENSION=384"),
        ({"provider": "openai"}, "EMBEDDING__API_KEY"),
        ({"provider": "sentence-transformers"}, re.escape("pip install 'remstack[sentence-transformers]'")),
    ],
)
def test_invalid_settings_are_rejected_at_once(wanted: dict[str, object], said: str) -> None:
    with pytest.raises(EmbeddingMisconfiguredError, match=said):
        open_embedder(_settings(**wanted))


@pytest.mark.parametrize(
    ("wanted", "model"),
    [
        ({"provider": "fastembed"}, "sentence-transformers/all-MiniLM-L6-v2"),
        ({"provider": "openai", "api_key": "k"}, "text-embedding-3-small"),
        ({"provider": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "own"}, "own"),
        ({"provider": "ollama"}, "all-minilm"),
    ],
)
async def test_every_provider_has_a_model(wanted: dict[str, object], model: str) -> None:
    embedder = open_embedder(_settings(**wanted))
    assert (embedder.model, embedder.dimension) == (model, 384)
    await embedder.close()


def test_every_provider_of_the_settings_can_be_opened() -> None:
    annotation = EmbeddingSettings.model_fields["provider"].annotation
    assert {*factory.PROVIDERS, "auto", "none"} == set(annotation.__args__)  # type: ignore[union-attr]


async def test_api_key_is_not_in_any_representation() -> None:
    settings = _settings(provider="openai", api_key=SecretStr("sk-very-secret"))
    assert "sk-very-secret" not in repr(settings)
    assert "sk-very-secret" not in str(await list_providers(settings))


async def test_list_providers_marks_the_selected_provider() -> None:
    assert [offer.provider for offer in await list_providers(_settings()) if offer.chosen] == ["local"]
    assert [offer.provider for offer in await list_providers(_settings(provider="none")) if offer.chosen] == []
    chosen = next(offer for offer in await list_providers(_settings(provider="ollama", model="bge-m3")) if offer.chosen)
    assert (chosen.provider, chosen.model, chosen.usable) == ("ollama", "bge-m3", True)


def test_models_list_shows_usable_providers_and_reasons(tmp_path: Path) -> None:
    shown = output("models", "list", settings={"REM_HOME": str(tmp_path)})
    assert re.search(r"^\* local +usable +rem-embed-2\n +part of the package$", shown, re.MULTILINE)
    assert re.search(r"^  sentence-transformers +not usable\n +.*pip install", shown, re.MULTILINE)
    off = output("models", "list", settings={"REM_HOME": str(tmp_path), "EMBEDDING__PROVIDER": "none"})
    assert "None is chosen" in off


def test_unknown_provider_is_a_settings_error(tmp_path: Path) -> None:
    done = rem("models", "list", settings={"REM_HOME": str(tmp_path), "EMBEDDING__PROVIDER": "word2vec"})
    assert done.returncode == 2
    assert "EMBEDDING__PROVIDER" in done.stderr


def test_error_classes_separate_temporary_from_permanent_failures() -> None:
    from rem.errors import EmbeddingUnavailableError

    for kind in (EmbeddingDisabledError, EmbeddingUnavailableError, EmbeddingMisconfiguredError):
        assert issubclass(kind, EmbeddingError)
        assert not issubclass(
            kind, tuple({EmbeddingDisabledError, EmbeddingUnavailableError, EmbeddingMisconfiguredError} - {kind})
        )
