"""Cross-encoders load from exported folders, score texts without blocking, and reorder hits."""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto
from pydantic import ValidationError

from rem.errors import RerankerError
from rem.models.results import Note
from rem.search.cross_encoder import CrossEncoder
from rem.search.cross_encoder_loader import LoadedModel, load_model
from rem.search.reranker import Reranker, RowReranker, open_reranker
from rem.settings import RerankerSettings, Settings
from tests.rem_command import REPOSITORY
from tests.search.tiny_cross_encoder import WORDS, Tiny, tokenizer, write_model

_QUESTION = "where is the lantern"
_TEXTS = ["the lantern is here", "a river", "bread", "the bread is the lantern", "lantern"]
_SHARED = [3, 0, 0, 3, 1]


def expected(shared: list[int]) -> list[float]:
    return [count - 2 for count in shared]


def make_text(first: int, words: int) -> str:
    """Return a text of `words` words that no question has. `first` makes texts different."""
    return " ".join(f"w{number % 40}" for number in range(first, first + words))


@pytest.fixture
async def opened() -> AsyncIterator[Callable[[Path], Reranker]]:
    """Return a function that opens rerankers as the settings do. They are closed at the end."""
    rerankers: list[Reranker] = []

    def open_one(path: Path, threads: int = 2) -> Reranker:
        reranker = open_reranker(RerankerSettings(model_path=path, threads=threads))
        assert reranker is not None
        rerankers.append(reranker)
        return reranker

    yield open_one
    for reranker in rerankers:
        await reranker.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "tiny-reranker")


@pytest.fixture
def tiny(folder: Path, opened: Callable[[Path], Reranker]) -> Reranker:
    return opened(folder)


async def test_texts_that_answer_the_question_score_higher(tiny: Reranker) -> None:
    assert await tiny.scores(_QUESTION, _TEXTS) == pytest.approx(expected(_SHARED))
    assert tiny.name == "tiny-reranker"


@pytest.mark.parametrize(
    "model",
    [
        Tiny(flat=True),
        Tiny(integers=TensorProto.INT32),
        Tiny(output="scores"),
        Tiny(inputs=("input_ids", "attention_mask")),
        Tiny(inputs=("input_ids",)),
        Tiny(inputs=("token_type_ids", "input_ids")),
    ],
    ids=["no label dimension", "int32", "other output", "no types", "only ids", "no mask"],
)
async def test_graph_gets_only_its_inputs(tmp_path: Path, opened: Callable[[Path], Reranker], model: Tiny) -> None:
    texts = ["the lantern is here", "a river", "lantern"]
    reranker = opened(write_model(tmp_path, model))
    assert await reranker.scores(_QUESTION, texts) == pytest.approx(expected([3, 0, 1]))


async def test_second_of_two_labels_means_yes(tmp_path: Path, opened: Callable[[Path], Reranker]) -> None:
    reranker = opened(write_model(tmp_path, Tiny(labels=2)))
    answer = [2 * (count - 2) for count in _SHARED]
    assert await reranker.scores(_QUESTION, _TEXTS) == pytest.approx(answer)


async def test_scores_are_in_the_order_of_the_texts(tiny: Reranker) -> None:
    source = random.Random(3)
    shared = [source.randint(0, 4) for _ in range(300)]
    lengths = [source.choice((0, 1, 5, 60, 300)) for _ in shared]
    words = _QUESTION.split()
    texts = [
        " ".join([*words[:count], make_text(number, length)])
        for number, (count, length) in enumerate(zip(shared, lengths, strict=True))
    ]
    assert await tiny.scores(_QUESTION, texts) == pytest.approx(expected(shared))
    assert await tiny.scores(_QUESTION, texts[::-1]) == pytest.approx(expected(shared[::-1]))


async def test_no_texts_give_no_scores_without_a_model(tmp_path: Path, opened: Callable[[Path], Reranker]) -> None:
    assert await opened(tmp_path / "nowhere").scores(_QUESTION, []) == []


async def test_blank_texts_and_questions_have_scores(tiny: Reranker) -> None:
    assert await tiny.scores(_QUESTION, ["", " \n", "\0"]) == pytest.approx(expected([0, 0, 0]))
    assert await tiny.scores("", ["lantern", ""]) == pytest.approx(expected([0, 0]))


@pytest.mark.parametrize(
    ("question", "text", "shared"),
    [
        ("東京 zürich 😀", "😀 in 東京", 2),
        ("ZÜRICH", "zu\u0308rich", 1),
        ("a\0lantern", "the\0lantern", 1),
        ("lantern \ud83d", "lantern half a pair \ud83d", 1),
    ],
)
async def test_any_script_is_scored(tiny: Reranker, question: str, text: str, shared: int) -> None:
    assert await tiny.scores(question, [text]) == pytest.approx(expected([shared]))


async def test_special_tokens_in_a_text_are_ordinary_words(tiny: Reranker) -> None:
    """Check that a separator in the question is a word: else its second half would count as text and match itself."""
    assert await tiny.scores("lantern [SEP] lantern", ["bread", "[PAD] [SEP] lantern"]) == pytest.approx(
        expected([0, 1])
    )


async def test_long_text_is_cut_at_the_end(tiny: Reranker) -> None:
    start = f"lantern {make_text(0, 450)}"
    texts = [f"{start} river", f"{start} {make_text(0, 200)} river", f"{make_text(0, 600)} lantern"]
    assert await tiny.scores("lantern river", texts) == pytest.approx(expected([2, 1, 0]))
    started = time.process_time()
    assert await tiny.scores("lantern", ["lantern " * 1_000_000] * 10) == pytest.approx(expected([1] * 10))
    assert time.process_time() - started < 3


async def test_long_question_leaves_room_for_the_text(tiny: Reranker) -> None:
    question = f"lantern {make_text(0, 5_000)}"
    assert await tiny.scores(question, ["lantern", "bread"]) == pytest.approx(expected([1, 0]))


@pytest.mark.parametrize(
    ("config", "tokenizer_config"),
    [
        ({"max_position_embeddings": 32}, None),
        ({"max_position_embeddings": 514}, {"model_max_length": 32}),
        ({"max_position_embeddings": None}, {"model_max_length": 32}),
        ({"max_position_embeddings": 32}, {"model_max_length": 10**30}),
        ({"max_position_embeddings": None}, None),
    ],
)
async def test_model_gets_no_more_tokens_than_it_takes(
    tmp_path: Path,
    opened: Callable[[Path], Reranker],
    config: dict[str, Any],
    tokenizer_config: dict[str, int] | None,
) -> None:
    """Check the limit. In the last case only the tokenizer names one, 16."""
    write_model(tmp_path, Tiny(positions=32), **config)
    if tokenizer_config:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer_config), encoding="utf-8")
    answer = await opened(tmp_path).scores("lantern", [f"lantern {make_text(0, 100)}", f"{make_text(0, 100)} lantern"])
    assert answer == pytest.approx(expected([1, 0]))


async def test_folder_without_config_files_works(folder: Path, tiny: Reranker) -> None:
    (folder / "config.json").unlink()
    assert await tiny.scores(_QUESTION, _TEXTS) == pytest.approx(expected(_SHARED))


@pytest.mark.parametrize("graph", ["onnx/model.onnx", "model_quantized.onnx", "onnx/model_int8.onnx"])
async def test_graph_is_found_in_all_export_layouts(
    tmp_path: Path, opened: Callable[[Path], Reranker], graph: str
) -> None:
    assert await opened(write_model(tmp_path, graph=graph)).scores("lantern", ["lantern"]) == pytest.approx(
        expected([1])
    )


async def test_exact_graph_is_used_unless_another_is_named(tmp_path: Path, opened: Callable[[Path], Reranker]) -> None:
    folder = write_model(tmp_path / "two", Tiny(bias=-2), graph="onnx/model.onnx")
    write_model(folder, Tiny(bias=5), graph="onnx/model_quantized.onnx")
    write_model(folder, Tiny(bias=5), graph="model_int8.onnx")
    named = opened(folder / "onnx" / "model_quantized.onnx")
    assert await opened(folder).scores("lantern", ["lantern"]) == pytest.approx([-1])
    assert await named.scores("lantern", ["lantern"]) == pytest.approx([6])
    assert await opened(folder / "model_int8.onnx").scores("lantern", ["lantern"]) == pytest.approx([6])
    assert named.name == "two"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.onnx", None, r"holds no model: none of model\.onnx, onnx/model\.onnx"),
        ("model.onnx", b"", r"model\.onnx cannot be loaded"),
        ("model.onnx", b"junk" * 100, r"model\.onnx cannot be loaded"),
        ("tokenizer.json", None, r"tokenizer\.json is not there"),
        ("tokenizer.json", b"{}", r"tokenizer\.json cannot be loaded"),
        ("config.json", b"{", r"config\.json is not JSON"),
        ("config.json", b"[]", r"config\.json is not a JSON object"),
        ("config.json", b"\xff\xfe\xff", r"config\.json is not JSON"),
        ("config.json", b'{"vocab_size": 5}', r"tokenizer\.json has \d+ tokens and the model 5"),
        ("config.json", b'{"max_position_embeddings": 3}', "takes 3 tokens, which leaves none"),
    ],
)
async def test_damaged_file_is_an_error_with_advice(
    folder: Path, tiny: Reranker, name: str, content: bytes | None, message: str
) -> None:
    intact = (folder / name).read_bytes()
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(RerankerError, match=rf"{message}.*docs/reranking\.md"):
        await tiny.scores(_QUESTION, _TEXTS)
    (folder / name).write_bytes(intact)
    assert await tiny.scores(_QUESTION, _TEXTS) == pytest.approx(expected(_SHARED)), "mended without a restart"


@pytest.mark.parametrize("path", ["nowhere", "nowhere/model.onnx", "file"])
async def test_missing_path_is_an_error(tmp_path: Path, opened: Callable[[Path], Reranker], path: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RerankerError, match=r"is not a (folder|file)\. Export"):
        await opened(tmp_path / path).scores(_QUESTION, _TEXTS)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Tiny(labels=3), "has 3 labels; a reranker has one, or two"),
        (Tiny(labels=0), r"answers 5 pairs with numbers of shape \(5, \d+, \d+\), so it is no cross-encoder"),
        (Tiny(bias=math.nan), "answered with a number that is not finite"),
        (Tiny(bias=math.inf), "answered with a number that is not finite"),
        (Tiny(positions=4), "failed: "),
        (Tiny(integers=TensorProto.FLOAT), "cannot be loaded: "),
    ],
)
async def test_model_that_is_no_reranker_is_an_error(
    tmp_path: Path, opened: Callable[[Path], Reranker], model: Tiny, message: str
) -> None:
    reranker = opened(write_model(tmp_path, model))
    with pytest.raises(RerankerError, match=rf"{re.escape(str(tmp_path))}/model\.onnx {message}"):
        await reranker.scores(_QUESTION, _TEXTS)


async def test_graph_with_unknown_inputs_is_an_error(tmp_path: Path, opened: Callable[[Path], Reranker]) -> None:
    reranker = opened(write_model(tmp_path, Tiny(inputs=("input_ids", "attention_mask", "position_ids"))))
    with pytest.raises(RerankerError, match="takes input_ids, attention_mask, position_ids; a cross-encoder takes"):
        await reranker.scores(_QUESTION, _TEXTS)


async def test_tokenizer_without_pairs_is_an_error(folder: Path, tiny: Reranker) -> None:
    tokenizer(pairs=False).save(str(folder / "tokenizer.json"))
    with pytest.raises(RerankerError, match=r"tokenizer\.json puts nothing between a question and a text"):
        await tiny.scores(_QUESTION, _TEXTS)


async def test_tokenizer_of_another_model_is_an_error(folder: Path, tiny: Reranker) -> None:
    (folder / "config.json").unlink()
    larger = tokenizer()
    larger.add_tokens(["unheard"])
    larger.save(str(folder / "tokenizer.json"))
    with pytest.raises(RerankerError, match=r"model\.onnx failed: "):
        await tiny.scores("unheard", ["lantern"])


async def test_concurrent_calls_get_their_own_scores(tiny: Reranker) -> None:
    questions = [" ".join(random.Random(number).sample(WORDS, 4)) for number in range(20)]
    texts = [" ".join(random.Random(number).sample(WORDS, number % 9)) for number in range(40)]
    answers = await asyncio.gather(*(tiny.scores(question, texts) for question in questions))
    for question, answer in zip(questions, answers, strict=True):
        words = set(question.split())
        assert answer == pytest.approx(expected([len(words & set(text.split())) for text in texts]))


async def test_scoring_does_not_block_the_event_loop(tiny: Reranker) -> None:
    work = asyncio.ensure_future(tiny.scores(_QUESTION, [make_text(number, 500) for number in range(600)]))
    pauses, last = [], time.perf_counter()
    while not work.done():
        await asyncio.sleep(0.001)
        pauses.append(time.perf_counter() - last)
        last = time.perf_counter()
    assert len(pauses) > 20
    assert sorted(pauses)[len(pauses) // 2] < 0.05
    assert len(await work) == 600


async def test_model_is_loaded_and_run_in_its_own_threads(tiny: Reranker, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()
    load = CrossEncoder._load

    def noted(encoder: CrossEncoder) -> LoadedModel:
        threads.add(threading.current_thread().name)
        return load(encoder)

    monkeypatch.setattr(CrossEncoder, "_load", noted)
    await tiny.scores(_QUESTION, [make_text(number, 100) for number in range(100)])
    assert threads
    assert not threads & {threading.main_thread().name}


async def test_next_call_works_after_a_cancelled_call(tiny: Reranker) -> None:
    work = asyncio.ensure_future(tiny.scores(_QUESTION, [make_text(number, 500) for number in range(600)]))
    await asyncio.sleep(0.05)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert await tiny.scores(_QUESTION, _TEXTS) == pytest.approx(expected(_SHARED))


async def test_close_works_twice_and_later_calls_fail(tiny: Reranker) -> None:
    await tiny.scores(_QUESTION, _TEXTS)
    await tiny.close()
    await tiny.close()
    with pytest.raises(RerankerError, match="The reranker tiny-reranker was closed"):
        await tiny.scores(_QUESTION, _TEXTS)


async def test_close_fails_running_calls(folder: Path) -> None:
    reranker = CrossEncoder("tiny", lambda: load_model(folder), threads=1)
    texts = [make_text(number, 500) for number in range(200)]
    calls = [asyncio.ensure_future(reranker.scores(_QUESTION, texts)) for _ in range(3)]
    await asyncio.sleep(0.05)
    await reranker.close()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(answer, RerankerError) for answer in answers), answers


def test_reranker_is_switched_off_everywhere() -> None:
    assert open_reranker(RerankerSettings(enabled=False)) is None
    assert open_reranker(RerankerSettings(enabled=False, model_path=Path("/nowhere"))) is None


def test_model_path_expands_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RERANKER__MODEL_PATH", "~/tiny")
    assert Settings().reranker.model_path == tmp_path / "tiny"
    monkeypatch.setenv("RERANKER__MODEL_PATH", "")
    assert Settings().reranker.model_path is None


@pytest.mark.parametrize("wrong", [{"candidates": 0}, {"candidates": 201}, {"weight": 10.1}, {"answer_weight": -0.1}])
def test_settings_out_of_range_are_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        RerankerSettings.model_validate(wrong)


def test_documented_settings_have_their_defaults() -> None:
    page = (REPOSITORY / "docs" / "reranking.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `RERANKER__([A-Z_]+)` \|.*\| (\S+) \|$", page, re.MULTILINE))
    stored = {name.upper(): str(value).lower() for name, value in RerankerSettings().model_dump().items()}
    assert rows == stored


def test_opening_a_reranker_loads_no_model_library(tmp_path: Path) -> None:
    probe = (
        "import sys; from pathlib import Path; from rem.search.reranker import open_reranker;"
        "from rem.settings import RerankerSettings;"
        "assert open_reranker(RerankerSettings(model_path=Path('/nowhere'))) and open_reranker(RerankerSettings());"
        "print(sorted({'numpy', 'onnx', 'onnxruntime', 'tokenizers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"


class Given:
    """A reranker with given logits for the texts, or an error."""

    name = "given"

    def __init__(self, logits: dict[str, float]) -> None:
        self._logits = logits

    async def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        if question == "fail":
            raise RerankerError("out of order")
        return [self._logits[text] for text in texts]

    async def close(self) -> None:
        return None


async def order(
    logits: list[float], scores: list[float], weight: float, candidates: int = 20, question: str = "q"
) -> tuple[list[int], list[Note]]:
    texts = [str(place) for place in range(len(logits))]
    notes: list[Note] = []
    reranker = RowReranker(Given(dict(zip(texts, logits, strict=True))), weight, candidates)
    return await reranker.order(question, texts, scores, notes), notes


@pytest.mark.parametrize(
    ("logits", "weight", "expected_order"),
    [
        ([-3.0, 0.0, 1.0, 2.0], 1.0, [3, 2, 1, 0]),
        ([-3.0, 0.0, 1.0, 2.0], 0.0, [0, 1, 2, 3]),
        ([-3.0, 0.0, 1.0, 2.0], 0.1, [0, 1, 2, 3]),
        ([-3.0, 0.0, 1.0, 2.0], 0.2, [2, 1, 3, 0]),
        ([5.0, 5.0, 5.0, 5.0], 10.0, [0, 1, 2, 3]),
    ],
)
async def test_weighted_logits_are_added_to_the_scores(
    logits: list[float], weight: float, expected_order: list[int]
) -> None:
    assert await order(logits, [0.9, 0.5, 0.4, 0.1], weight) == (expected_order, [])


async def test_equal_sums_keep_the_order_of_the_scores() -> None:
    assert await order([0.0, 1.0, 1.0], [0.5, 0.5, 0.5], 0.1) == ([1, 2, 0], [])
    assert await order([0.0, 2.0, 1.0], [0.5, 0.25, 0.375], 0.125) == ([0, 2, 1], [])
    assert await order([], [], 0.5) == ([], [])


async def test_only_the_best_rows_are_read_and_the_others_follow() -> None:
    assert await order([0.0, 9.0, 1.0, -9.0], [0.1, 0.2, 0.4, 0.3], 1.0, candidates=2) == ([2, 3, 1, 0], [])


async def test_failure_keeps_the_order_of_the_scores_with_a_note() -> None:
    found, notes = await order([0.0, 9.0, 1.0], [0.1, 0.2, 0.4], 1.0, question="fail")
    assert (found, notes) == ([2, 1, 0], [Note("not_reranked", "Not reranked: out of order")])


async def test_candidates_do_not_change_each_others_scores(tiny: Reranker) -> None:
    together = await tiny.scores(_QUESTION, [*_TEXTS, make_text(0, 100)])
    alone = [(await tiny.scores(_QUESTION, [text]))[0] for text in _TEXTS]
    assert together[:-1] == pytest.approx(alone)
