"""Golden sets: inputs with their references, from YAML, JSON lines or CSV, from a session and from feedback."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import orjson
import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from rem.agents.chat import ClientMessage
from rem.db.yaml import BoundedLoader, YamlLimitError, load_yaml
from rem.errors import InvalidInputError, NotFoundError
from rem.evals.json_files import parse_json, read_bytes, require_path, validate_model
from rem.models import Feedback, Message, Role
from rem.models.field_types import to_json_value

if TYPE_CHECKING:
    from uuid import UUID

    from rem.app import Rem
    from rem.context import Scope

Rating: TypeAlias = Literal["positive", "negative", "all"]

MAX_FILE_BYTES = 100_000_000
MAX_CASES = 100_000
MAX_HISTORY_MESSAGES = 200
MAX_FEEDBACK_ROWS = 10_000
SUFFIXES = (".yaml", ".yml", ".jsonl", ".csv")
_CASE_COLUMNS = ("id", "input", "reference")


def _check_json(value: Any) -> Any:
    return to_json_value(value)


def _require_input(value: Any) -> Any:
    if value is None or (isinstance(value, str) and not value.strip()):
        raise ValueError("is empty: write what the agent or the query gets")
    return value


def _number_to_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


_Json = Annotated[Any, AfterValidator(_check_json)]


class GoldenMessage(BaseModel):
    """A message before the input of a case."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Literal["user", "assistant"]
    content: str = Field(min_length=1)


class GoldenCase(BaseModel):
    """One input, the reference that its output is judged by, and notes about the case."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[
        str, BeforeValidator(_number_to_text), AfterValidator(_check_json), Field(min_length=1, max_length=200)
    ]
    input: Annotated[_Json, AfterValidator(_require_input)]
    reference: _Json = None
    metadata: Annotated[dict[str, Any], AfterValidator(_check_json)] = Field(default_factory=dict)
    history: list[GoldenMessage] = Field(default_factory=list, max_length=MAX_HISTORY_MESSAGES)

    @property
    def text(self) -> str:
        """The input as a text for an agent."""
        return self.input if isinstance(self.input, str) else orjson.dumps(self.input).decode()

    @property
    def client_history(self) -> list[ClientMessage]:
        """The messages before the input."""
        return [ClientMessage(message.role, message.content) for message in self.history]

    def as_json(self) -> dict[str, Any]:
        """Return the case as it is written to files, without empty fields."""
        return self.model_dump(mode="json", exclude_defaults=True)


@dataclass(frozen=True, slots=True)
class GoldenSet:
    """Cases with a name."""

    name: str
    cases: tuple[GoldenCase, ...]

    @property
    def data_hash(self) -> str:
        """The hash of all cases. Two golden sets with the same hash are the same."""
        return hash_json([case.as_json() for case in self.cases])


def hash_json(value: Any) -> str:
    """Return a short hash of a JSON value; the order of the fields does not matter."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def read_golden_set(path: Path) -> GoldenSet:
    """Read a file; its suffix tells the format. Raise InvalidInputError with the line of what is wrong."""
    require_path(path)
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder: name a file.")
    if path.suffix not in SUFFIXES:
        raise InvalidInputError(f"{path}: a golden set ends in {', '.join(SUFFIXES)}.")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise InvalidInputError(f"{path} is larger than {MAX_FILE_BYTES // 1_000_000} MB: divide it.")
    readers = {".jsonl": _read_jsonl, ".csv": _read_csv}
    cases = _collect(readers.get(path.suffix, _read_yaml)(path), path)
    return GoldenSet(path.stem, cases)


def write_golden_set(cases: Sequence[GoldenCase], path: Path) -> None:
    """Write cases as JSON lines or as YAML; the suffix tells the format. An existing file is not replaced."""
    if path.suffix in (".yaml", ".yml"):
        text = yaml.safe_dump([case.as_json() for case in cases], sort_keys=False, allow_unicode=True, width=120)
    elif path.suffix == ".jsonl":
        text = format_jsonl(cases)
    else:
        raise InvalidInputError(f"{path}: write a golden set to a file that ends in .jsonl or .yaml.")
    try:
        # A golden set is edited by people: what they wrote must not be lost.
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise InvalidInputError(f"{path} exists: choose another name, or remove it first.") from error
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}. Choose another place.") from error


def format_jsonl(cases: Iterable[GoldenCase]) -> str:
    """Return cases as JSON lines."""
    return "".join(f"{orjson.dumps(case.as_json()).decode()}\n" for case in cases)


def _collect(values: Iterator[tuple[int, Any]], path: Path) -> tuple[GoldenCase, ...]:
    """Validate the cases. A case without an id is known by its position."""
    cases: dict[str, tuple[GoldenCase, int]] = {}
    for position, (line, value) in enumerate(values, start=1):
        where = f"{path}, line {line}"
        if position > MAX_CASES:
            raise InvalidInputError(f"{where}: a golden set has at most {MAX_CASES:,} cases.")
        if isinstance(value, dict) and value.get("id") in (None, ""):
            value = {**value, "id": f"case-{position}"}
        case = validate_model(GoldenCase, value, where)
        if case.id in cases:
            raise InvalidInputError(f"{where}: the id {case.id!r} is also on line {cases[case.id][1]}.")
        cases[case.id] = (case, line)
    if not cases:
        raise InvalidInputError(f"{path} has no cases: write at least one with an input.")
    return tuple(case for case, _ in cases.values())


def _read_jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(read_bytes(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            yield number, parse_json(line, f"{path}, line {number},")


def _read_yaml(path: Path) -> Iterator[tuple[int, Any]]:
    text = _decode(path)
    try:
        value = load_yaml(text, aliases=False)
        lines = _find_case_lines(text)
    except YamlLimitError as error:
        raise InvalidInputError(f"{path}{_format_line(error.line)}: {error}.") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = _format_line(mark.line + 1 if mark else None)
        raise InvalidInputError(f"{path}{line}: not valid YAML: {error.problem or error.context}.") from error
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidInputError(f"{path}: not valid YAML: {error}.") from error
    cases = value.get("cases") if isinstance(value, dict) else value
    if not isinstance(cases, list):
        raise InvalidInputError(f"{path} must be a list of cases, or a mapping with the field cases.")
    yield from zip(lines, cases, strict=True)


def _find_case_lines(text: str) -> list[int]:
    """Return the line of each case of a YAML text."""
    loader = BoundedLoader(text)
    try:
        root = loader.get_single_node()
    finally:
        loader.dispose()
    if isinstance(root, yaml.MappingNode):
        root = next((value for key, value in root.value if key.value == "cases"), None)
    return [node.start_mark.line + 1 for node in root.value] if isinstance(root, yaml.SequenceNode) else []


def _format_line(line: int | None) -> str:
    return "" if line is None else f", line {line}"


def _read_csv(path: Path) -> Iterator[tuple[int, Any]]:
    """Read rows with the columns input, reference and id. Other columns become metadata.

    A reference may be a JSON list or object.
    """
    reader = csv.reader(io.StringIO(_decode(path), newline=""), strict=True)
    line = 1
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_header(header, path)
        line = reader.line_num + 1
        for row in reader:
            if any(row):
                yield line, _make_csv_case(header, row, f"{path}, line {line}")
            line = reader.line_num + 1
    except csv.Error as error:
        raise InvalidInputError(f"{path}, line {line}: not valid CSV: {error}.") from error


def _check_header(header: list[str], path: Path) -> None:
    if "input" not in header:
        hint = " Separate the columns with commas." if len(header) == 1 and ";" in header[0] else ""
        raise InvalidInputError(f"{path}, line 1: there is no column input.{hint}")
    duplicate = next((name for name in header if header.count(name) > 1), None)
    if duplicate is not None:
        raise InvalidInputError(f"{path}, line 1: there are several columns {duplicate!r}.")


def _make_csv_case(header: list[str], row: list[str], where: str) -> dict[str, Any]:
    if len(row) != len(header):
        raise InvalidInputError(f"{where}: has {len(row)} fields, but the first line has {len(header)}.")
    fields = dict(zip(header, row, strict=True))
    case: dict[str, Any] = {name: fields[name] for name in _CASE_COLUMNS if fields.get(name)}
    if case.get("reference", "").startswith(("[", "{")):
        case["reference"] = _parse_json(case["reference"])
    return case | {"metadata": {name: value for name, value in fields.items() if name not in _CASE_COLUMNS and value}}


def _parse_json(text: str) -> Any:
    """Return the list or the object in a cell; any other text as it is."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _decode(path: Path) -> str:
    content = read_bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InvalidInputError(f"{path}, line {line}: is not UTF-8 text: save it as UTF-8.") from error


async def golden_from_session(
    rem: Rem, scope: Scope, session_id: UUID, *, with_history: bool = True
) -> list[GoldenCase]:
    """Return a case for each answered message of a session. The reference is the answer of that time."""
    messages = await rem.for_user(scope).sessions.load_session(session_id, create_session=False)
    cases = [*_pair_messages(messages, with_history=with_history)]
    if not cases:
        raise NotFoundError("The session has no answered message, so no case can be made of it.")
    return cases


def _pair_messages(messages: Sequence[Message], *, with_history: bool) -> Iterator[GoldenCase]:
    history: list[GoldenMessage] = []
    question: Message | None = None
    for message in messages:
        if message.role not in (Role.USER, Role.ASSISTANT) or not message.content.strip():
            continue
        if message.role is Role.USER:
            question = message
            continue
        if question is not None:
            yield _make_case(question, message, history if with_history else [], {})
            history = [
                *history,
                GoldenMessage(role="user", content=question.content),
                GoldenMessage(role="assistant", content=message.content),
            ][-MAX_HISTORY_MESSAGES:]
        question = None


def _make_case(
    question: Message, answer: Message, history: list[GoldenMessage], metadata: dict[str, Any], *, is_right: bool = True
) -> GoldenCase:
    source = {"session_id": str(answer.session_id), "message_index": answer.message_index}
    return GoldenCase(
        id=f"{answer.session_id}-{answer.message_index}",
        input=question.content,
        reference=answer.content if is_right else None,
        metadata=source | metadata,
        history=history,
    )


async def golden_from_feedback(rem: Rem, scope: Scope, *, rating: Rating = "positive") -> list[GoldenCase]:
    """Return a case for each rated answer of the user.

    A praised answer is the reference of its case. A case of a criticised answer has no reference: its metadata holds
    the answer as `rejected`, and the comment.
    """
    store, memory = rem.for_user(scope).store, rem.for_user(scope).sessions
    cases: dict[str, GoldenCase] = {}
    for feedback in await store.find(Feedback, limit=MAX_FEEDBACK_ROWS):
        is_good = _is_positive(feedback.rating)
        if feedback.message_id is None or is_good is None or (rating != "all" and is_good != (rating == "positive")):
            continue
        try:
            answer = await store.get(Message, feedback.message_id)
            messages = await memory.load_session(answer.session_id, create_session=False)
        except NotFoundError:
            # The answer, or its session, was deleted since then.
            continue
        case = _make_feedback_case(feedback, answer, messages, is_good=is_good)
        if case is not None:
            cases[case.id] = case
    if not cases:
        raise NotFoundError("No rated answer fits: rate answers with /feedback in `rem chat`, or try --rating all.")
    return list(cases.values())


def _make_feedback_case(
    feedback: Feedback, answer: Message, messages: Sequence[Message], *, is_good: bool
) -> GoldenCase | None:
    before = [message for message in messages if message.message_index < answer.message_index]
    question = next((message for message in reversed(before) if message.role is Role.USER), None)
    if answer.role is not Role.ASSISTANT or question is None:
        return None
    notes: dict[str, Any] = {"rating": feedback.rating, "feedback_id": str(feedback.id)}
    if feedback.comment:
        notes["comment"] = feedback.comment
    if feedback.categories:
        notes["categories"] = feedback.categories
    if not is_good:
        notes["rejected"] = answer.content
    return _make_case(question, answer, [], notes, is_right=is_good)


def _is_positive(rating: int | None) -> bool | None:
    """Return whether a rating praises or criticises; None if neither. 1 is a thumb up, 4 and 5 are stars."""
    if rating in (1, 4, 5):
        return True
    return False if rating in (-1, 2) else None
