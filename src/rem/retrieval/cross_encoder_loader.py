"""A cross-encoder's folder as Hugging Face's tools export it: which of its files are used, and what they say."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from rem.errors import EmbeddingUnavailableError, RerankerError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

MAX_TOKENS = 512
"""Of a question and a text together; a model that takes fewer gets fewer."""

# The exact graph before the rounded ones: who wants the faster one names the file itself.
_GRAPHS = tuple(
    f"{folder}{name}.onnx" for name in ("model", "model_quantized", "model_int8") for folder in ("", "onnx/")
)
_TOKENIZER, _CONFIG, _TOKENIZER_CONFIG = "tokenizer.json", "config.json", "tokenizer_config.json"
_FED = ("input_ids", "attention_mask", "token_type_ids")
_INTEGERS = {"tensor(int64)": "int64", "tensor(int32)": "int32"}
_EXPORT = "Export a cross-encoder as docs/reranking.md says, or unset RERANKER__MODEL_PATH."


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A cross-encoder that can be run."""

    graph: Path
    session: InferenceSession
    tokenizer: Tokenizer
    inputs: dict[str, str]
    """The integer type of every input."""
    output: str
    pad_id: int


def find_model_folder(path: Path) -> Path:
    """The model's folder, if the path is that of its graph or of the folder itself."""
    if path.suffix != ".onnx":
        return path
    return path.parent.parent if path.parent.name == "onnx" else path.parent


def load_model(path: Path) -> LoadedModel:
    """The model of a folder, or of a folder's graph that is named itself; an error says what to do."""
    graph, folder = _find_graph(path), find_model_folder(path)
    config = _read_json(folder / _CONFIG)
    tokenizer = _load_tokenizer(folder, config)
    session = _open_session(graph)
    return LoadedModel(graph, session, tokenizer, _inputs(graph, session), _output(session), _pad_id(tokenizer, config))


def model_error(path: Path, what: str) -> RerankerError:
    """An error about a file of the model that says what to do."""
    return RerankerError(f"{path} {what}. {_EXPORT}")


def _find_graph(path: Path) -> Path:
    if path.suffix == ".onnx":
        if path.is_file():
            return path
        raise model_error(path, "is not a file")
    if not path.is_dir():
        raise model_error(path, "is not a folder")
    found = next((path / name for name in _GRAPHS if (path / name).is_file()), None)
    if found is None:
        raise model_error(path, f"holds no model: none of {', '.join(_GRAPHS)}")
    return found


def _open_session(graph: Path) -> InferenceSession:
    from rem.embeddings.minilm import graph_cache

    try:
        return graph_cache.load_session(str(graph))
    except EmbeddingUnavailableError as error:
        raise model_error(graph, f"cannot be loaded: {error}") from error


def _inputs(graph: Path, session: InferenceSession) -> dict[str, str]:
    types = {node.name: node.type for node in session.get_inputs()}
    if "input_ids" not in types or not types.keys() <= set(_FED):
        raise model_error(
            graph, f"takes {', '.join(types)}; a cross-encoder takes input_ids and nothing beside {_FED[1:]}"
        )
    if not set(types.values()) <= _INTEGERS.keys():
        raise model_error(graph, f"takes {', '.join(types.values())} and not integers")
    return {name: _INTEGERS[kind] for name, kind in types.items()}


def _output(session: InferenceSession) -> str:
    names: list[str] = [node.name for node in session.get_outputs()]
    return "logits" if "logits" in names else names[0]


def _load_tokenizer(folder: Path, config: dict[str, Any]) -> Tokenizer:
    from tokenizers import Tokenizer

    # Our threads are bounded; the tokenizer's own would not be, and warn whenever the process forks.
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
    # What a memory says is never a special token: a text with [SEP] in it would end there.
    tokenizer.encode_special_tokens = True
    tokenizer.enable_truncation(_longest(folder, tokenizer, config), strategy="longest_first")
    return tokenizer


def _longest(folder: Path, tokenizer: Tokenizer, config: dict[str, Any]) -> int:
    """How many tokens the model takes; the tokenizer's own file often says fewer, so it is asked last."""
    said = [config.get("max_position_embeddings"), _read_json(folder / _TOKENIZER_CONFIG).get("model_max_length")]
    limits = [limit for limit in said if _is_positive(limit)]
    if not limits and tokenizer.truncation:
        limits = [tokenizer.truncation["max_length"]]
    longest = int(min([MAX_TOKENS, *limits]))
    if longest <= tokenizer.num_special_tokens_to_add(is_pair=True):
        raise model_error(folder, f"says that the model takes {longest} tokens, which leaves none for a text")
    return longest


def _pad_id(tokenizer: Tokenizer, config: dict[str, Any]) -> int:
    """What fills a batch's shorter rows; some models count positions by it, so it must be theirs."""
    said = config.get("pad_token_id")
    if said is None and tokenizer.padding:
        said = tokenizer.padding["pad_id"]
    tokenizer.no_padding()
    return said if isinstance(said, int) and said >= 0 else 0


def _is_positive(number: object) -> TypeGuard[float]:
    return isinstance(number, int | float) and number > 0


def _read_json(path: Path) -> dict[str, Any]:
    """What an optional file says: nothing if it is not there."""
    content = _read(path)
    try:
        said = json.loads(content) if content is not None else {}
    except ValueError as error:
        raise model_error(path, f"is not JSON: {error}") from error
    if not isinstance(said, dict):
        raise model_error(path, "is not a JSON object")
    return said


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise model_error(path, f"cannot be read: {error.strerror}") from error
