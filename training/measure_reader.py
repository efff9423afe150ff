"""Measure the reader of the package on questions and messages that it was not trained on.

    python -m training.measure_reader CANDIDATES.jsonl … [--weeks WEEK.yaml …]

CANDIDATES.jsonl is what training/week_candidates.py writes for held-out weeks; WEEK.yaml are these weeks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from bench.quality.week.data import WeekQuestion, read_week

from rem.search.reader import PAIR_HEAD, Reader, RowReading, RowText, join_replaced, load_reader
from training.reader_messages import FOLDER, read_held_out

READ_ROWS = 8
MAX_OTHER_PAIRS = 1500
WEIGHTS = (0.0, 0.02, 0.04, 0.06, 0.1, 0.2)


def read_candidates(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the questions of some files with their rows."""
    return [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]


def make_row(row: dict[str, Any], *, with_before: bool = False) -> RowText:
    """Return the text of a candidate as REM reads it."""
    heading = row["title"] if row["title"] and not row["text"].lstrip("# ").startswith(row["title"]) else ""
    return RowText(row["text"], heading or "", (row["before"] or "") if with_before else "")


def make_question(item: dict[str, Any]) -> WeekQuestion:
    """Return the question of a candidate, which knows what answers it."""
    known = {"ask": item["ask"], "group": "notes", "source": "any"}
    return WeekQuestion.model_validate(known | {"answer": item["answer"], "not": item["outdated"]})


async def read_all(reader: Reader, items: Sequence[dict[str, Any]], *, with_before: bool) -> list[list[RowReading]]:
    """Return the readings of the first rows of each question."""
    found = []
    for item in items:
        rows = [make_row(row, with_before=with_before) for row in item["rows"][:READ_ROWS]]
        found.append([reading for reading in await reader.read(item["ask"], rows) if reading is not None])
    return found


def measure_answers(items: Sequence[dict[str, Any]], readings: Sequence[list[RowReading]]) -> Iterator[str]:
    """Yield how often the best row and its sentence hold the answer, by the weight of the relevance."""
    kept = [
        (item, read)
        for item, read in zip(items, readings, strict=True)
        if any(row["answers"] for row in item["rows"][:READ_ROWS])
    ]
    for weight in (*WEIGHTS, None):
        rows, sentences, groups = 0, 0, Counter[str]()
        for item, read in kept:
            scores = [
                reading.relevance if weight is None else row["score"] + weight * reading.relevance
                for row, reading in zip(item["rows"], read, strict=False)
            ]
            best = int(np.argmax(scores))
            start, end = read[best].sentence
            row, sentence = item["rows"][best], item["rows"][best]["text"][start:end]
            question = make_question(item)
            rows += row["answers"]
            right = question.is_answered_by(sentence) and not question.is_outdated_in(sentence)
            sentences += right
            groups[item["group"]] += right
        counts = Counter(item["group"] for item, _ in kept)
        shares = {group: f"{groups[group] / count:.2f}" for group, count in sorted(counts.items())}
        label = "relevance alone" if weight is None else f"weight {weight}"
        yield f"{label}: row {rows / len(kept):.3f}, sentence {sentences / len(kept):.3f} of {len(kept)}; {shares}"


def auroc(yes: Sequence[float], no: Sequence[float]) -> float:
    """Return how often one of `yes` is above one of `no`."""
    order = np.argsort(np.argsort(np.array([*yes, *no])))
    return float((order[: len(yes)].sum() - len(yes) * (len(yes) - 1) / 2) / (len(yes) * len(no)))


def list_pairs(items: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str, str, bool]]:
    """Yield a question, a newer and an older text, and whether the newer one replaces the older one."""
    for item in items:
        rows = [row for row in item["rows"][:12] if row["time"]]
        for older in rows[:5]:
            for newer in rows:
                is_later = (newer["time"], newer["place"]) > (older["time"], older["place"])
                if not is_later or (newer["is_note"] and not older["is_note"]) or newer["is_outdated"]:
                    continue
                replaces = older["is_outdated"] and newer["answers"]
                if replaces or not (newer["answers"] and (older["answers"] or older["is_outdated"])):
                    yield item["ask"], newer["text"], older["text"], replaces


def choose_pairs(items: Sequence[dict[str, Any]]) -> list[tuple[str, str, str, bool]]:
    """Return all pairs that replace, and a sample of the others."""
    pairs = list(list_pairs(items))
    others = [pair for pair in pairs if not pair[3]]
    return [pair for pair in pairs if pair[3]] + random.Random(1).sample(others, min(MAX_OTHER_PAIRS, len(others) // 4))


def measure_replaced(scored: Sequence[tuple[float, bool]]) -> Iterator[str]:
    """Yield how well scores tell pairs that replace from others."""
    yes, no = ([score for score, replaces in scored if replaces is wanted] for wanted in (True, False))
    yield f"replaced: AUROC {auroc(yes, no):.4f} of {len(yes)} and {len(no)} pairs"
    for share in (0.002, 0.005, 0.01, 0.02):
        limit = float(np.quantile(no, 1 - share))
        found = np.mean(np.array(yes) > limit)
        yield f"  {found:.3f} found where {share:.1%} of the others are taken (above {limit:.3f})"


async def measure_messages(reader: Reader, weeks: Sequence[Path]) -> None:
    """Print how often the types of held-out messages, and what they continue, are right."""
    typed, pairs = read_held_out()
    wrong, total = Counter[str](), Counter[str]()
    for text, kind in typed:
        found = (await reader.classify(text)).type
        total[kind] += 1
        wrong[kind] += found != kind
        if found != kind:
            print(f"  {kind} as {found}: {text}")
    print(f"types: {1 - wrong.total() / total.total():.3f} of {total.total()} right; wrong: {dict(+wrong)}")
    right = [((await reader.classify(text, before)).continues > 0.5) is known for before, text, known in pairs]
    print(f"continues: {np.mean(right):.3f} of {len(right)} right")
    short = yaml.safe_load((FOLDER / "short_messages.yaml").read_text(encoding="utf-8"))["held_out"]
    messages = [
        (m if isinstance(m, str) else m["text"] if "text" in m else next(iter(m.values())), kind)
        for kind, found in short.items()
        for m in found
    ]
    await _measure_kinds(reader, "short messages", messages)
    read = [read_week(path) for path in weeks]
    said = [(m.text, str(m.kind)) for week in read for session in week.sessions for m in session.messages]
    await _measure_kinds(reader, "weeks", said + [(q.ask, "question") for week in read for q in week.questions])


async def _measure_kinds(reader: Reader, name: str, messages: Sequence[tuple[str, str]]) -> None:
    confusion = Counter([(kind, str((await reader.classify(text)).kind)) for text, kind in messages])
    wrong = {f"{kind} as {found}": count for (kind, found), count in confusion.items() if kind != found}
    print(f"kinds of {name}: {sum(wrong.values())} of {confusion.total()} wrong: {wrong}")


async def measure(options: argparse.Namespace) -> None:
    """Print all figures."""
    reader = Reader(threads=1)
    items = read_candidates(options.candidates)[:: options.every]
    for with_before in (False, True) if options.before else (False,):
        started = time.process_time()
        readings = await read_all(reader, items, with_before=with_before)
        seconds = (time.process_time() - started) / sum(map(len, readings))
        print(f"with the message before: {with_before}; {seconds * 1e3:.1f} ms of CPU for each row")
        print("\n".join(measure_answers(items, readings)))
        right, removed = [], []
        for item, read in zip(items, readings, strict=True):
            labels = [row["answers"] for row in item["rows"][:READ_ROWS]]
            if any(labels):
                right.append(max(r.answers for r in read))
                removed.append(max((r.answers for r, label in zip(read, labels, strict=True) if not label), default=0))
        print(f"answers: AUROC {auroc(right, removed):.3f} of {len(right)} questions with and without their rows")
    pairs = choose_pairs(items)
    scores = [(await reader.replaces(ask, [(newer, older)]))[0] for ask, newer, older, _ in pairs]
    print("replaced, by the model of its own")
    print("\n".join(measure_replaced([(score, pair[3]) for score, pair in zip(scores, pairs, strict=True)])))
    model = load_reader()
    place = PAIR_HEAD.index("replaces")
    heads = [
        model.run([model.encode(ask, join_replaced(newer, older))])[0].pair[place] for ask, newer, older, _ in pairs
    ]
    print("replaced, by the head of the reader, which REM does not use")
    print("\n".join(measure_replaced([(float(score), pair[3]) for score, pair in zip(heads, pairs, strict=True)])))
    await measure_messages(reader, options.weeks)
    await reader.close()


def main() -> None:
    """Read the options, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("candidates", type=Path, nargs="+")
    parser.add_argument("--every", type=int, default=1, help="measure only every so many questions")
    parser.add_argument("--before", action="store_true", help="also read each row with the message before it")
    parser.add_argument("--weeks", type=Path, nargs="*", default=[])
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
