"""Read a collection of documents with questions and relevance judgements, in the layout of BEIR."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from bench.quality.dataset import Case, Dataset, DatasetText, DroppedCounts, Question
from rem.errors import InvalidInputError
from rem.evals.json_files import parse_json, read_bytes, require_path, validate_model
from rem.text import clean_text

METRICS = ("recall@10",)
USER = "reader"
CORPUS, QUERIES, JUDGEMENTS = "corpus.jsonl", "queries.jsonl", ("qrels/test.tsv", "qrels/dev.tsv", "qrels.tsv")


def _to_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_Text = Annotated[str, AfterValidator(clean_text)]
_Id = Annotated[str, BeforeValidator(_to_text), Field(min_length=1)]


class _Document(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: _Id = Field(alias="_id")
    title: _Text = ""
    text: _Text


class _Query(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: _Id = Field(alias="_id")
    text: _Text


_L = TypeVar("_L", _Document, _Query)


@dataclass(frozen=True, slots=True)
class DocumentSet:
    """A data set of one memory, and how relevant each document is for each question, by their ids."""

    dataset: Dataset
    grades: dict[str, dict[str, int]]


def read_dataset(folder: Path, limit: int | None = None) -> DocumentSet:
    """Return the documents and questions of a folder; with `limit`, only the first questions with a judgement."""
    require_path(folder)
    if not folder.is_dir():
        raise InvalidInputError(f"{folder} is a file: name the folder with {CORPUS}, {QUERIES} and {JUDGEMENTS[0]}.")
    documents = {document.id: document for document in _read_lines(_find(folder, CORPUS), _Document)}
    queries = {query.id: query for query in _read_lines(_find(folder, QUERIES), _Query)}
    dropped = DroppedCounts()
    grades = _read_grades(_find(folder, *JUDGEMENTS), queries, documents, dropped)
    judged = [query for query_id, query in queries.items() if query_id in grades][:limit]
    if not judged:
        raise InvalidInputError(f"{folder} has no question with a relevant document.")
    questions = tuple(Question(query.id, query.text, "none", tuple(grades[query.id])) for query in judged)
    texts = tuple(_build_texts(documents))
    dataset = Dataset("documents", (Case(USER, questions, texts=texts),), "resources", "id", METRICS, dropped)
    return DocumentSet(dataset, {query.id: grades[query.id] for query in judged})


def _find(folder: Path, *names: str) -> Path:
    """Return the first file of these names that exists, also as .gz."""
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    raise InvalidInputError(f"{folder} has no file {names[0]}.")


def _read_lines(path: Path, model: type[_L]) -> Iterator[_L]:
    for number, line in _lines(path):
        where = f"{path}:{number}"
        yield validate_model(model, parse_json(line, where), where)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    lines = read_bytes(path).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    yield from ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def _read_grades(
    path: Path, queries: dict[str, _Query], documents: dict[str, _Document], dropped: DroppedCounts
) -> dict[str, dict[str, int]]:
    """Return the grades above 0 of each question. Both layouts are read: of BEIR (3 columns) and of TREC (4)."""
    grades: dict[str, dict[str, int]] = {}
    for number, line in _lines(path):
        columns = line.decode(errors="replace").split()
        if number == 1 and not columns[-1].lstrip("-").isdigit():
            continue
        if len(columns) not in (3, 4) or not columns[-1].lstrip("-").isdigit():
            raise InvalidInputError(f"{path}:{number}: write the ids of a question and a document, and a whole number.")
        query_id, document_id, grade = columns[0], columns[-2], int(columns[-1])
        if grade <= 0:
            continue
        if query_id in queries and document_id in documents:
            grades.setdefault(query_id, {})[document_id] = grade
        else:
            dropped.gold_ids += 1
    return grades


def _build_texts(documents: dict[str, _Document]) -> Iterator[DatasetText]:
    """Yield the documents. Titles become names, which must differ, so a repeated one gets the id of the document."""
    titles = Counter(document.title.strip().lower() for document in documents.values())
    for document in documents.values():
        title = document.title.strip()
        name = title if titles[title.lower()] == 1 and title else f"{title} {document.id}".strip()
        yield DatasetText(document.id, document.text, None, name)
