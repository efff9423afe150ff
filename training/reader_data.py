"""Make the examples on which the reader is trained.

    python -m training.reader_data OUT.jsonl CANDIDATES.jsonl … [--friends FILE] [--squad FILE …]
    python -m training.reader_data DEV.jsonl CANDIDATES.jsonl … --held-out

CANDIDATES.jsonl is what training/week_candidates.py writes. The written conversations with their answers, tables
(training/tables), short facts (training/short_facts.yaml) and messages (training/reader_messages.yaml,
short_messages.yaml) are added. FriendsQA (friends_spans.json.gz) and files in the format of SQuAD are optional. With
`--held-out`, there are only the candidates, and the tables and messages that are not trained on.

Each line is one example:

    {"ask": …, "rows": [[text, label, start, end, has_relevance], …]}    label 1 answers, 0 does not
    {"ask": …, "older": …, "newer": …, "replaces": …}
    {"text": …, "previous": …, "type": …, "continues": …}
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rem.search.reader import RowText, join_row
from rem.text import FUNCTION_WORDS, fold_text, split_words
from training.dialogue_answers import read_answers
from training.dialogues import Dialogue, read_dialogue
from training.reader_messages import make_messages, read_held_out, type_badly
from training.short_facts import make_short_facts
from training.tables import FOLDER as TABLES
from training.tables import make_table_examples, read_tables

Example = dict[str, Any]
FOLDER = Path(__file__).parent
MAX_ROW_CHARS = 900
SHARE_WITH_BEFORE = 0.4
"""Of the rows that have a message before them, so many are read with it."""
SHARE_SWAPPED_WEEKS, SHARE_SWAPPED_DIALOGUES = 0.5, 0.7
NEGATIVES = 2
FRIENDS_SHARE, SQUAD_SHARE = 0.3, 0.2
SHARE_TYPED_BADLY = 0.5
TABLE_PASSES = 3
"""So many times each question about a table is read in an epoch, each time with other rows."""
MAX_SQUAD_CHARS = 400
_NAME = re.compile(r"(?<=[a-z,;'] )([A-Z][a-zà-ÿ]{2,})\b")


class Maker:
    """Makes examples of texts, the same ones for the same seed."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)

    def from_weeks(self, paths: Iterable[Path]) -> Iterator[Example]:
        """Yield examples of the candidates of everyday questions."""
        weeks: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for path in paths:
            for line in path.read_text(encoding="utf-8").splitlines():
                item = json.loads(line)
                weeks[item["week"]].append(item)
        for items in weeks.values():
            texts = {row["text"] for item in items for row in item["rows"]}
            names = _find_names(texts)
            for item in items:
                yield from self._from_week_question(item, names)
                yield from self._replaced_in_week(item)

    def _from_week_question(self, item: dict[str, Any], names: Sequence[str]) -> Iterator[Example]:
        right = [row for row in item["rows"] if row["answers"] and row["is_source"]][:2]
        wrong = [row for row in item["rows"] if not row["answers"] and not row["is_outdated"]]
        near = wrong[: 2 * NEGATIVES]
        chosen = self._random.sample(near, min(NEGATIVES, len(near)))
        if not right:
            if item["group"] == "unanswerable" and near:
                yield {"ask": item["ask"], "rows": [[*self._week_row(row, None)[:4], False] for row in near[:2]]}
            return
        rows = [self._week_row(row, item["answer"]) for row in right]
        rows += [self._week_row(row, None) for row in chosen]
        yield {"ask": item["ask"], "rows": rows}
        swapped = self.swap(item["ask"], names)
        if swapped and self._random.random() < SHARE_SWAPPED_WEEKS:
            unanswered = [[*self._week_row(right[0], None)[:4], False], self._week_row(near[0], None)] if near else []
            if unanswered:
                yield {"ask": swapped, "rows": unanswered}

    def _week_row(self, row: dict[str, Any], answers: list[str] | None) -> list[Any]:
        text = row["text"][:MAX_ROW_CHARS]
        before = row["before"] if row["before"] and self._random.random() < SHARE_WITH_BEFORE else ""
        heading = row["title"] if row["title"] and not text.lstrip("# ").startswith(row["title"]) else ""
        return self.row(RowText(text, heading or "", before), answers)

    def _replaced_in_week(self, item: dict[str, Any]) -> Iterator[Example]:
        """Yield pairs of rows in their order in time. An outdated one is replaced by the answer, others by nothing."""
        rows = [row for row in item["rows"][:12] if row["time"]]
        wrong: list[Example] = []
        for older in rows:
            for newer in rows:
                if not _is_newer(newer, older):
                    continue
                pair = {"ask": item["ask"], "older": older["text"], "newer": newer["text"]}
                if older["is_outdated"] and newer["answers"]:
                    yield pair | {"replaces": True}
                elif not newer["is_outdated"] and not (newer["answers"] and older["answers"]):
                    wrong.append(pair | {"replaces": False})
        yield from self._random.sample(wrong, min(1 + any(row["is_outdated"] for row in rows), len(wrong)))

    def from_dialogues(self, paths: Iterable[Path]) -> Iterator[Example]:
        """Yield examples of written conversations and their answers."""
        for path in paths:
            yield from self._from_dialogue(read_dialogue(path), path.parent / "answers" / path.name)

    def _from_dialogue(self, dialogue: Dialogue, answers: Path) -> Iterator[Example]:
        pieces: dict[tuple[int, str], list[str]] = defaultdict(list)
        for answer in read_answers(answers):
            pieces[answer.question, answer.message].append(answer.piece)
        said = [message for session in dialogue.sessions for message in session]
        place = {message.number: index for index, message in enumerate(said)}
        search = WordSearch([message.text for message in said])
        for number, question in enumerate(dialogue.questions, start=1):
            right = [place[message] for message in question.answers]
            is_adversarial = question.kind == "adversarial"
            found = [index for index in search.find(question.text, 10) if index not in right]
            beside = [i for index in right[:1] for i in (index - 1, index + 1) if 0 <= i < len(said) and i not in right]
            wrong = self._random.sample(found[:6], min(1, len(found))) + self._random.sample(
                beside, min(1, len(beside))
            )

            def describe(index: int, answers: list[str] | None) -> list[Any]:
                before = f"{said[index - 1].speaker}: {said[index - 1].text}" if index else ""
                kept = before if self._random.random() < SHARE_WITH_BEFORE else ""
                return self.row(RowText(said[index].text, said[index].speaker, kept), answers)

            if is_adversarial:
                rows = [[*describe(index, None)[:4], False] for index in right[:2]]
                yield {"ask": question.text, "rows": rows + [describe(index, None) for index in wrong[:1]]}
                continue
            answered = [describe(i, pieces.get((number, said[i].number)) or []) for i in right[:3]]
            yield {"ask": question.text, "rows": answered + [describe(index, None) for index in dict.fromkeys(wrong)]}
            swapped = self.swap(question.text, dialogue.speakers)
            if swapped and found and len(right) == 1 and self._random.random() < SHARE_SWAPPED_DIALOGUES:
                yield {"ask": swapped, "rows": [[*describe(right[0], None)[:4], False], describe(found[0], None)]}

    def from_friends(self, path: Path) -> Iterator[Example]:
        """Yield examples of FriendsQA."""
        for scene in json.loads(gzip.decompress(path.read_bytes())):
            said = scene["utterances"]
            speakers = sorted({utterance["speaker"] for utterance in said})
            search = WordSearch([utterance["text"] for utterance in said])

            def describe(index: int, answers: list[str] | None, said: Any = said) -> list[Any]:
                return self.row(RowText(said[index]["text"], said[index]["speaker"]), answers)

            for item in scene["qa"]:
                if self._random.random() > FRIENDS_SHARE:
                    continue
                right: dict[int, list[str]] = defaultdict(list)
                for answer in item["answers"]:
                    right[int(answer["utterance"])] += [] if answer["is_speaker"] else [answer["text"]]
                found = [index for index in search.find(item["question"], 8) if index not in right]
                rows = [describe(index, pieces) for index, pieces in list(right.items())[:2]]
                rows += [describe(index, None) for index in self._random.sample(found, min(NEGATIVES, len(found)))]
                yield {"ask": item["question"], "rows": rows}
                swapped = self.swap(item["question"], [name.split()[0] for name in speakers])
                if swapped and found and self._random.random() < 0.4:
                    first = next(iter(right))
                    yield {"ask": swapped, "rows": [[*describe(first, None)[:4], False], describe(found[0], None)]}

    def from_squad(self, path: Path) -> Iterator[Example]:
        """Yield examples of paragraphs in the format of SQuAD, cut into pieces."""
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                pieces = list(_cut(paragraph["context"], MAX_SQUAD_CHARS))
                for item in paragraph["qas"]:
                    if self._random.random() > SQUAD_SHARE or not item["answers"]:
                        continue
                    answer = item["answers"][0]
                    at = int(answer["answer_start"])
                    right = [(s, t) for s, t in pieces if s <= at and at + len(answer["text"]) <= s + len(t)]
                    wrong = [t for _, t in pieces if answer["text"] not in t]
                    if not right:
                        continue
                    start = at - right[0][0]
                    rows: list[list[Any]] = [[right[0][1], 1, start, start + len(answer["text"]), True]]
                    rows += [[text, 0, None, None, True] for text in self._random.sample(wrong, min(1, len(wrong)))]
                    yield {"ask": item["question"], "rows": rows}

    def row(self, row: RowText, answers: list[str] | None) -> list[Any]:
        """Return a row as it is read, whether it answers, and where the answer is in it, if that is known."""
        text, start = join_row(row)
        spans = [] if answers is None else [_find(row.text, answer) for answer in answers]
        span = min((span for span in spans if span), default=None)
        place = [start + span[0], start + span[1]] if span else [None, None]
        return [text, int(answers is not None), *place, True]

    def swap(self, question: str, names: Sequence[str]) -> str | None:
        """Return the question about somebody or something else of the same memory, or None if it has no such name."""
        known = [name for name in names if re.search(rf"\b{re.escape(name)}\b", question)]
        others = [name for name in names if name not in known]
        if not known or not others:
            return None
        return re.sub(rf"\b{re.escape(self._random.choice(known))}\b", self._random.choice(others), question)


class WordSearch:
    """Finds texts by their words (BM25), in place of REM where a set has no sessions."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._words = [Counter(_content_words(text)) for text in texts]
        self._usual = sum(words.total() for words in self._words) / max(1, len(texts))
        self._counts = Counter(word for words in self._words for word in words)

    def find(self, question: str, limit: int) -> list[int]:
        """Return the places of the best texts."""
        asked = set(_content_words(question))
        scores: Counter[int] = Counter()
        for place, words in enumerate(self._words):
            for word in asked & words.keys():
                count = self._counts[word]
                weight = math.log(1 + (len(self._words) - count + 0.5) / (count + 0.5))
                length = 0.25 + 0.75 * words.total() / self._usual
                scores[place] += weight * words[word] * 2.2 / (words[word] + 1.2 * length)  # type: ignore[assignment]
        return [place for place, _ in scores.most_common(limit)]


def make_short_pairs(generator: random.Random, share: float) -> Iterator[Example]:
    """Yield short facts, and later ones that do or do not replace them."""
    for ask, older, newer, replaces in make_short_facts():
        if generator.random() < share:
            yield {"ask": ask, "older": older, "newer": newer, "replaces": replaces}


def _is_newer(newer: dict[str, Any], older: dict[str, Any]) -> bool:
    """Return whether a row may replace another. What was said is not outdated because a note was stored later."""
    is_later = (newer["time"], newer["place"]) > (older["time"], older["place"])
    return is_later and (older["is_note"] or not newer["is_note"])


def _find_names(texts: Iterable[str]) -> list[str]:
    counts = Counter(name for text in texts for name in _NAME.findall(text))
    return sorted(name for name, count in counts.items() if count > 1)


def _find(text: str, answer: str) -> tuple[int, int] | None:
    """Return where an answer is in a text, whatever its case and its apostrophes."""
    pattern = re.escape(answer.replace("’", "'").strip()).replace("'", "['’]").replace(r"\ ", r"\s+")
    match = re.search(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE) or re.search(pattern, text, re.IGNORECASE)
    return match.span() if match else None


def _content_words(text: str) -> list[str]:
    return [word[:6] for word in split_words(fold_text(text)) if word not in FUNCTION_WORDS]


def _cut(text: str, size: int) -> Iterator[tuple[int, str]]:
    """Yield pieces of whole sentences with their offsets."""
    start = 0
    for match in re.finditer(r"(?<=[.!?])\s+|\Z", text):
        if match.start() - start >= size or match.start() == len(text):
            if text[start : match.start()].strip():
                yield start, text[start : match.start()]
            start = match.end()


def make_examples(options: argparse.Namespace) -> Iterator[Example]:
    """Yield the examples to train on."""
    maker, generator = Maker(options.seed), random.Random(options.seed)
    examples = [*maker.from_weeks(options.candidates), *maker.from_dialogues(sorted(FOLDER.glob("dialogues/*.txt")))]
    if options.friends:
        examples += maker.from_friends(options.friends)
    for path in options.squad:
        examples += maker.from_squad(path)
    tables = [table for path in sorted(TABLES.glob("*.yaml")) for table in read_tables(path)]
    for _ in range(TABLE_PASSES):
        examples += make_table_examples([table for table in tables if not table.is_held_out], generator)
    for example in examples:
        if "rows" in example and generator.random() < SHARE_TYPED_BADLY:
            example["ask"] = type_badly(example["ask"], generator)
    yield from examples
    yield from make_short_pairs(generator, options.short_facts)
    weeks = {json.loads(line)["week"] for path in options.candidates for line in path.read_text().splitlines()}
    yield from make_messages(sorted(FOLDER / "weeks" / f"{week}.yaml" for week in weeks), generator)


def make_held_out_examples(options: argparse.Namespace) -> Iterator[Example]:
    """Yield the examples to measure on."""
    yield from Maker(options.seed).from_weeks(options.candidates)
    tables = [table for path in sorted(TABLES.glob("*.yaml")) for table in read_tables(path)]
    held_out = [table for table in tables if table.is_held_out]
    yield from (e for e in make_table_examples(held_out, random.Random(options.seed)) if "rows" in e)
    typed, pairs = read_held_out()
    yield from ({"text": text, "previous": None, "type": kind, "continues": None} for text, kind in typed)
    for before, text, continues in pairs:
        yield {"text": text, "previous": before, "type": None, "continues": continues}


def main() -> None:
    """Make the examples, and write them in a mixed order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("candidates", type=Path, nargs="+")
    parser.add_argument("--friends", type=Path)
    parser.add_argument("--squad", type=Path, nargs="*", default=[])
    parser.add_argument("--short-facts", type=float, default=0.25, help="the share of the short facts")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    examples = list((make_held_out_examples if options.held_out else make_examples)(options))
    random.Random(options.seed).shuffle(examples)
    with options.out.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(example) + "\n" for example in examples)
    kinds = Counter("rows" if "rows" in e else "pair" if "older" in e else "message" for e in examples)
    rows = sum(len(e["rows"]) for e in examples if "rows" in e)
    print(f"{dict(kinds)}, {rows} rows")


if __name__ == "__main__":
    main()
