"""Store data sets in a temporary REM, and export what its ranking knows of each question, without vectors.

    python -m training.ranking_data OUT friends=friends.json.gz synthetic=synthetic.jsonl …

Each set becomes OUT/NAME.npz: the tokens of all passages and questions, and for each question the word weights, priors,
neighbours, speakers and exact matches that SEARCH uses. training/ranking.py adds vectors to these and gets REM's order,
so that a model is trained and measured with the ranking it will be used in.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from bench.quality.dataset import Case, Dataset, DatasetMessage, DatasetSession, DatasetText, Question
from bench.quality.datasets import beam, documents, locomo, longmemeval
from bench.quality.retrieval_benchmark import RetrievalBenchmark
from bench.quality.temporary_server import prepare_schema, temporary_server

from rem.app import Rem
from rem.models import Role
from rem.search.identifiers import find_exact_items, find_identifier_words
from rem.search.indexer import _load_embedding_texts
from rem.search.models.files import load_tokenizer
from rem.search.synonyms import find_synonyms
from rem.search.time_words import asks_for_time, find_relative_time_words
from rem.settings import EmbeddingSettings, Settings

PASSAGES = """
SELECT p.id, p.tenant_id, p.owner, p.entity_type, p.entity_id, p.group_id, p.position, p.prior, p.speaker,
       p.tells_time, p.field, p.starts, p.ends,
       rem.rem_record(p.entity_type, p.tenant_id, p.entity_id) -> 'metadata' AS metadata
FROM rem.passages p WHERE p.tenant_id = $1 AND p.owner = $2 AND (p.kind IN ('statement', 'answer') OR NOT $3)
ORDER BY p.group_id, p.position, p.id
"""
WORDS = """
SELECT t.full_weight, array_agg(w.id) AS ids, array_agg(w.weight) AS weights,
       (SELECT array_agg(x.entity_id) FROM unnest(exact.matches) x) AS exact_ids,
       (SELECT array_agg(x.weight) FROM unnest(exact.matches) x) AS exact_weights
FROM rem.rem_query_terms($1, $3, $4, $5) t
CROSS JOIN LATERAL (
  -- OFFSET 0 keeps the planner from looking for the matches again for every passage.
  SELECT rem.rem_find_exact_matches(
    $1, ARRAY[$2], NULL, NULL, NULL, false, NULL, CASE WHEN $6 THEN ARRAY['statement', 'answer'] END, $7, t.terms, $8
  ) AS matches
  OFFSET 0) exact
LEFT JOIN LATERAL (
  SELECT p.id, rem.rem_word_weight(p.terms, t.terms) AS weight FROM rem.passages p
  WHERE p.tenant_id = $1 AND p.owner = $2 AND (p.kind IN ('statement', 'answer') OR NOT $6)) w ON w.weight > 0
GROUP BY t.full_weight, exact.matches
"""


def read_memories(path: Path) -> Dataset:
    """Read memories with questions, one per line (training/synthetic.py, training/clean_longmemeval.py)."""
    cases = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        memory = json.loads(line)
        sessions = tuple(
            DatasetSession(
                f"s{index}",
                None,
                tuple(
                    DatasetMessage(m["id"], place, Role(m.get("role", "user")), m["text"], None, m.get("speaker"))
                    for place, m in enumerate(messages)
                ),
            )
            for index, messages in enumerate(memory["sessions"])
        )
        texts = tuple(DatasetText(note["id"], note["text"], None, note.get("title")) for note in memory["notes"])
        questions = tuple(
            Question(f"{number}:{index}", q["question"], "synthetic", tuple(q["gold"]))
            for index, q in enumerate(memory["questions"])
        )
        cases.append(Case(f"memory-{number}", questions, sessions, texts))
    return Dataset("memories", tuple(cases), None, "item", ("recall@10",))


def read_conversations(path: Path) -> Dataset:
    """Read memories whose questions search messages."""
    return replace(read_memories(path), table="messages")


READERS: dict[str, Callable[[Path], Dataset]] = {
    "longmemeval_train": read_conversations,
    "notes": read_memories,
    "chats": read_conversations,
    "longmemeval_dev": longmemeval.read_dataset,
    "beam": beam.read_dataset,
}
"""Readers by the name of a set. `documents_*` is a collection of documents; all others have the format of LoCoMo."""


def read(name: str, path: Path) -> tuple[Dataset, dict[str, dict[str, int]]]:
    """Return a data set, and the grades of a collection of documents."""
    if name.startswith("documents_"):
        collection = documents.read_dataset(path)
        return replace(collection.dataset, table=None), collection.grades
    return READERS.get(name.partition(".")[0], locomo.read_dataset)(path), {}


class Exporter:
    """Collects the arrays of one set."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[str, int] = {}
        self.columns: dict[str, list[Any]] = {}

    def add(self, **values: Any) -> int:
        """Append one value to each of some columns. Return the number of the row."""
        for name, value in values.items():
            self.columns.setdefault(name, []).append(value)
        return len(self.columns[next(iter(values))]) - 1

    def text(self, text: str) -> int:
        """Return the number of a text."""
        return self._texts.setdefault(text, len(self._texts))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the columns and the tokens of the texts."""
        texts = list(self._texts)
        encoded = [self._tokenizer.encode_batch_fast(texts[i : i + 256]) for i in range(0, len(texts), 256)]
        ids = [encoding.ids for batch in encoded for encoding in batch]
        kinds: dict[str, Any] = {"word_weight": np.float32, "entity_prior": np.float32, "question_full": np.float32}
        kinds |= {"exact_weight": np.float32}
        arrays = {name: np.array(values, dtype=kinds.get(name, np.int32)) for name, values in self.columns.items()}
        arrays["tokens"] = np.concatenate([np.array(i, dtype=np.uint16) for i in ids])
        arrays["offsets"] = np.cumsum([0, *map(len, ids)], dtype=np.int64).astype(np.int32)
        return arrays


async def export(settings: Settings, dataset: Dataset, grades: dict[str, dict[str, int]], exporter: Exporter) -> None:
    """Store a data set, and export its passages and questions."""
    tenant = f"train-{uuid4().hex[:8]}"
    async with Rem.open(settings) as rem:
        benchmark = RetrievalBenchmark(rem, dataset, tenant=tenant)
        await benchmark.store(lambda *_: None)
        await rem.for_user(tenant=tenant).index()
        for case in dataset.cases:
            await rem.for_user(case.user, tenant=tenant).index()
        async with rem.database.connection() as connection:
            for number, case in enumerate(dataset.cases):
                await _export_case(connection, tenant, dataset, number, case, grades, exporter)


async def _export_case(
    connection: Any,
    tenant: str,
    dataset: Dataset,
    number: int,
    case: Case,
    grades: dict[str, dict[str, int]],
    exporter: Exporter,
) -> None:
    statements_only = dataset.table is None
    passages = await connection.fetch(PASSAGES, tenant, case.user, statements_only)
    texts = await _load_embedding_texts(connection, passages)
    by_session = dataset.table == "sessions"
    passage_numbers: dict[int, int] = {}
    entities: dict[Any, int] = {}
    sessions: dict[Any, int] = {}
    speakers: dict[str, int] = {}
    gold_ids: dict[str, list[int]] = {}
    for p in passages:
        if p["id"] not in texts:
            continue
        entity = entities.get(p["entity_id"])
        if entity is None:
            speaker = -1 if p["speaker"] is None else speakers.setdefault(p["speaker"], len(speakers))
            session = -1 if p["group_id"] is None else sessions.setdefault(p["group_id"], len(sessions))
            entity = entities[p["entity_id"]] = exporter.add(
                entity_owner=number,
                entity_session=session,
                entity_position=-1 if p["position"] is None else p["position"],
                entity_prior=p["prior"],
                entity_speaker=speaker,
                entity_tells_time=bool(p["tells_time"]),
            )
            gold_ids.setdefault(str(p["metadata"].get(dataset.id_field)), []).append(session if by_session else entity)
        passage_numbers[p["id"]] = exporter.add(
            passage_owner=number, passage_entity=entity, passage_text=exporter.text(texts[p["id"]])
        )
    for question in case.questions:
        gold = {i: grades.get(question.id, {}).get(g, 1) for g in question.gold for i in gold_ids.get(g, [])}
        if not gold:
            continue
        await _export_question(
            connection,
            tenant,
            case,
            number,
            question.text,
            statements_only,
            gold,
            passage_numbers,
            entities,
            speakers,
            exporter,
        )


async def _export_question(
    connection: Any,
    tenant: str,
    case: Case,
    number: int,
    text: str,
    statements_only: bool,
    gold: dict[int, int],
    passages: dict[int, int],
    entities: dict[Any, int],
    speakers: dict[str, int],
    exporter: Exporter,
) -> None:
    row = await connection.fetchrow(
        WORDS,
        tenant,
        case.user,
        f"{text} {find_identifier_words(text)}",
        find_relative_time_words(text),
        find_synonyms(text) if statements_only else "",
        statements_only,
        find_exact_items(text),
        len(passages),
    )
    question = exporter.add(
        question_owner=number,
        question_text=exporter.text(text),
        question_full=row["full_weight"] or 0.0,
        question_asks_time=asks_for_time(text),
    )
    for target, grade in gold.items():
        exporter.add(gold_question=question, gold_target=target, gold_grade=grade)
    for passage, weight in zip(row["ids"] or (), row["weights"] or (), strict=True):
        if passage in passages:
            exporter.add(word_question=question, word_passage=passages[passage], word_weight=weight)
    for entity, weight in zip(row["exact_ids"] or (), row["exact_weights"] or (), strict=True):
        if entity in entities:
            exporter.add(exact_question=question, exact_entity=entities[entity], exact_weight=weight)
    names = set(_letters(text.lower()))
    for speaker, index in speakers.items():
        if speaker in names:
            exporter.add(named_question=question, named_speaker=index)


def _letters(text: str) -> Iterable[str]:
    return "".join(c if c.isalpha() else " " for c in text).split()


def main() -> None:
    """Export every set that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("sets", nargs="+", help="NAME=PATH")
    parser.add_argument("--home", type=Path, default=Path.home() / ".rem", help="REM_HOME")
    parser.add_argument("--limit", type=int, help="use only the first cases")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer()
    settings = Settings(rem_home=options.home, embedding=EmbeddingSettings(provider="none"))
    with temporary_server(settings, print) as temporary:
        asyncio.run(prepare_schema(temporary))
        for entry in options.sets:
            name, _, path = entry.partition("=")
            dataset, grades = read(name, Path(path))
            dataset = replace(dataset, cases=dataset.cases[: options.limit])
            exporter = Exporter(tokenizer)
            asyncio.run(export(temporary, dataset, grades, exporter))
            arrays = exporter.arrays()
            arrays["by_session"] = np.array(dataset.table == "sessions")
            np.savez_compressed(options.out / f"{name}.npz", **arrays)  # type: ignore[arg-type]
            print(f"{name}: {len(arrays['passage_text'])} passages, {len(arrays['question_text'])} questions")


if __name__ == "__main__":
    main()
