"""Load a cross-encoder: REM's own, or one from a folder in the layout of the Hugging Face export tools."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from rem.errors import EmbeddingMisconfiguredError, EmbeddingUnavailableError, RerankerError
from rem.search.models.files import FOLDER, REPLACEMENT, load_session, load_tokenizer, open_graph

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

REPLACEMENT_MODEL = "rem-replace-2"
"""It says whether the newer one of two texts replaces the older one, as an answer to a question."""
MAX_OWN_QUESTION_TOKENS = 64
"""REM's own model was trained with questions of at most this length."""
MAX_TOKENS = 512
"""The tokens of a query and a text together. A model with a lower limit gets fewer."""

# The exact graph comes before the quantized ones. To use a faster one, name its file in the settings.
_GRAPH_NAMES = tuple(
    f"{folder}{name}.onnx" for name in ("model", "model_quantized", "model_int8") for folder in ("", "onnx/")
)
_TOKENIZER, _CONFIG, _TOKENIZER_CONFIG = "tokenizer.json", "config.json", "tokenizer_config.json"
_INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")
_INTEGER_TYPES = {"tensor(int64)": "int64", "tensor(int32)": "int32"}
_ADVICE = "Export a cross-encoder as docs/reranking.md says, or unset RERANKER__MODEL_PATH."


class PairSession(Protocol):
    """Runs a graph, like a session of ONNX Runtime."""

    def run(self, outputs: Sequence[str], feed: Mapping[str, Any], /) -> Sequence[Any]:
        """Return the outputs for the inputs."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A cross-encoder that is ready to run."""

    graph: Path
    session: PairSession
    tokenizer: Tokenizer
    inputs: dict[str, str]
    """The integer type of each input."""
    output: str
    pad_id: int
    max_question_tokens: int = MAX_TOKENS


@cache
def load_replacement_model() -> LoadedModel:
    """Load the model that says whether a newer text replaces an older one, once for the whole process.

    Raise RerankerError if its files are damaged.
    """
    try:
        session, tokenizer = open_graph(REPLACEMENT, FOLDER), load_tokenizer()
    except (EmbeddingMisconfiguredError, EmbeddingUnavailableError) as error:
        raise RerankerError(str(error)) from error
    tokenizer.encode_special_tokens = True
    inputs = dict.fromkeys(_INPUT_NAMES, "int32")
    return LoadedModel(FOLDER / REPLACEMENT, session, tokenizer, inputs, "logits", 0, MAX_OWN_QUESTION_TOKENS)


def find_model_folder(path: Path) -> Path:
    """Return the folder of a model, given its path or the path of its graph."""
    if path.suffix != ".onnx":
        return path
    return path.parent.parent if path.parent.name == "onnx" else path.parent


def load_model(path: Path) -> LoadedModel:
    """Load the model of a folder, or one graph of it. Raise RerankerError if a file is missing or unusable."""
    graph, folder = _find_graph(path), find_model_folder(path)
    config = _read_json(folder / _CONFIG)
    tokenizer = _load_tokenizer(folder, config)
    session = _open_session(graph)
    inputs = _find_inputs(graph, session)
    return LoadedModel(graph, session, tokenizer, inputs, _find_output(session), _find_pad_id(tokenizer, config))


def model_error(path: Path, reason: str) -> RerankerError:
    """Return the error for a file of the model, with advice."""
    return RerankerError(f"{path} {reason}. {_ADVICE}")


def _find_graph(path: Path) -> Path:
    if path.suffix == ".onnx":
        if path.is_file():
            return path
        raise model_error(path, "is not a file")
    if not path.is_dir():
        raise model_error(path, "is not a folder")
    graph = next((path / name for name in _GRAPH_NAMES if (path / name).is_file()), None)
    if graph is None:
        raise model_error(path, f"holds no model: none of {', '.join(_GRAPH_NAMES)}")
    return graph


def _open_session(graph: Path) -> InferenceSession:
    try:
        return load_session(str(graph))
    except EmbeddingUnavailableError as error:
        raise model_error(graph, f"cannot be loaded: {error}") from error


def _find_inputs(graph: Path, session: InferenceSession) -> dict[str, str]:
    types = {node.name: node.type for node in session.get_inputs()}
    if "input_ids" not in types or not types.keys() <= set(_INPUT_NAMES):
        raise model_error(
            graph, f"takes {', '.join(types)}; a cross-encoder takes input_ids and nothing beside {_INPUT_NAMES[1:]}"
        )
    if not set(types.values()) <= _INTEGER_TYPES.keys():
        raise model_error(graph, f"takes {', '.join(types.values())} and not integers")
    return {name: _INTEGER_TYPES[kind] for name, kind in types.items()}


def _find_output(session: InferenceSession) -> str:
    names: list[str] = [node.name for node in session.get_outputs()]
    return "logits" if "logits" in names else names[0]


def _load_tokenizer(folder: Path, config: dict[str, Any]) -> Tokenizer:
    from tokenizers import Tokenizer

    # Our own threads are limited. The tokenizer's are not, and they print a warning when the process forks.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    path = folder / _TOKENIZER
    content = _read(path)
    if content is None:
        raise model_error(path, "is not there")
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except ValueError as error:
        raise model_error(path, f"cannot be loaded: {error}") from error
    if not tokenizer.num_special_tokens_to_add(is_pair=True):
        raise model_error(path, "puts nothing between a question and a text, so it is not that of a cross-encoder")
    known = config.get("vocab_size")
    if _is_positive(known) and tokenizer.get_vocab_size() > known:
        raise model_error(
            path, f"has {tokenizer.get_vocab_size()} tokens and the model {known}, so they do not belong together"
        )
    # Special tokens in a text are ordinary words: otherwise a text with [SEP] in it would end there.
    tokenizer.encode_special_tokens = True
    tokenizer.enable_truncation(_find_max_tokens(folder, tokenizer, config), strategy="longest_first")
    return tokenizer


def _find_max_tokens(folder: Path, tokenizer: Tokenizer, config: dict[str, Any]) -> int:
    """Return how many tokens the model takes. The tokenizer's own file often names fewer, so it comes last."""
    configured = [config.get("max_position_embeddings"), _read_json(folder / _TOKENIZER_CONFIG).get("model_max_length")]
    limits = [limit for limit in configured if _is_positive(limit)]
    if not limits and tokenizer.truncation:
        limits = [tokenizer.truncation["max_length"]]
    max_tokens = int(min([MAX_TOKENS, *limits]))
    if max_tokens <= tokenizer.num_special_tokens_to_add(is_pair=True):
        raise model_error(folder, f"says that the model takes {max_tokens} tokens, which leaves none for a text")
    return max_tokens


def _find_pad_id(tokenizer: Tokenizer, config: dict[str, Any]) -> int:
    """Return the padding token of the model. Some models compute positions from it, so it must be the right one."""
    pad_id = config.get("pad_token_id")
    if pad_id is None and tokenizer.padding:
        pad_id = tokenizer.padding["pad_id"]
    tokenizer.no_padding()
    return pad_id if isinstance(pad_id, int) and pad_id >= 0 else 0


def _is_positive(number: object) -> TypeGuard[float]:
    return isinstance(number, int | float) and number > 0


def _read_json(path: Path) -> dict[str, Any]:
    """Return the content of an optional JSON file, or an empty dict if it does not exist."""
    content = _read(path)
    try:
        values = json.loads(content) if content is not None else {}
    except ValueError as error:
        raise model_error(path, f"is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise model_error(path, "is not a JSON object")
    return values


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise model_error(path, f"cannot be read: {error.strerror}") from error
