"""The prompts of the reader and the judge: REM's own, or files of the user, for example with published wording."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from rem.errors import InvalidInputError
from rem.evals.json_files import read_bytes, require_path

DEFAULT_KIND = "default"
UNANSWERABLE_KIND = "unanswerable"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_READER_NEEDS, _JUDGE_NEEDS = ("history", "question"), ("question", "response")


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompt of the reader, and the prompts of the judge by kind of question."""

    reader: str
    judge: Mapping[str, str]

    def make_reader_prompt(self, *, history: str, question: str, date: str) -> str:
        """Return what the reader gets."""
        return _fill(self.reader, {"history": history, "question": question, "date": date})

    def make_judge_prompt(self, kind: str, *, question: str, answer: str, response: str) -> str:
        """Return what the judge gets for a question of this kind."""
        template = self.judge.get(kind) or self.judge[DEFAULT_KIND]
        return _fill(template, {"question": question, "answer": answer, "response": response, "kind": kind})

    @property
    def fingerprint(self) -> str:
        """A text that differs if a prompt differs."""
        return sha256(repr((self.reader, sorted(self.judge.items()))).encode()).hexdigest()[:16]


def load_prompts(dataset: str, reader_file: Path | None = None, judge_file: Path | None = None) -> Prompts:
    """Return the prompts for a data set. A file replaces REM's own. Raise InvalidInputError if it is not valid."""
    own = _load_own()
    is_locomo = dataset == "locomo"
    reader = str(own["reader_short" if is_locomo else "reader"])
    judge = dict(own["judge"])
    if is_locomo:
        judge = {DEFAULT_KIND: judge["locomo"], UNANSWERABLE_KIND: judge[UNANSWERABLE_KIND]}
    if reader_file is not None:
        reader = _read_text(reader_file)
        _require_placeholders(reader, _READER_NEEDS, str(reader_file))
    if judge_file is not None:
        judge = _read_judge(judge_file)
    return Prompts(reader, judge)


@cache
def _load_own() -> dict[str, Any]:
    text = (Path(__file__).parent / "prompts.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


def _read_judge(path: Path) -> dict[str, str]:
    """Read one prompt for all questions, or a YAML mapping (.yaml, .yml) of kinds to prompts with `default`."""
    text = _read_text(path)
    if path.suffix not in (".yaml", ".yml"):
        _require_placeholders(text, _JUDGE_NEEDS, str(path))
        return {DEFAULT_KIND: text}
    try:
        prompts = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInputError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(prompts, dict) or not all(isinstance(prompt, str) for prompt in prompts.values()):
        raise InvalidInputError(f"{path} must have a prompt for each kind of question, such as `default: …`.")
    if DEFAULT_KIND not in prompts:
        raise InvalidInputError(f"{path} has no prompt `default`, for the kinds that it does not name.")
    for kind, prompt in prompts.items():
        _require_placeholders(prompt, _JUDGE_NEEDS, f"{path}: {kind}")
    return {str(kind): prompt for kind, prompt in prompts.items()}


def _read_text(path: Path) -> str:
    require_path(path)
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not UTF-8 text.") from error


def _require_placeholders(prompt: str, names: tuple[str, ...], where: str) -> None:
    missing = [name for name in names if f"{{{name}}}" not in prompt]
    if missing:
        raise InvalidInputError(f"{where}: the prompt needs {' and '.join(f'{{{name}}}' for name in missing)}.")


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders in one pass, so that braces in a value or in the rest of the prompt stay."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), template).strip()
