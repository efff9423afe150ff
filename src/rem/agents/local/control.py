"""Recognise in plain words what `rem:local` is asked to remember, forget or correct, and call the agent's tools."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ToolCallPart, ToolReturnPart

from rem.agents.local.excerpts import CONFIRMATION, NOTICE, shorten
from rem.text import FUNCTION_WORDS, split_sentences, split_words

MAX_COMMAND_CHARS = 2_000
_POLITE = (
    r"(?:(?:please|ok|okay|hey|rem|and|now)[,\s]+|(?:can|could|would|will) you\s+(?:please\s+)?|"
    r"i (?:want|would like|need) you to\s+)*"
)
_FORGET = re.compile(
    rf"{_POLITE}(?:forget|delete|remove|erase)\s+(?!(?:to|how|why)\b)(?:about\s+)?(?P<what>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_CORRECT = re.compile(rf"{_POLITE}(?:correct(?:ion|ed)?|fix|update)\s*[:,–-]\s*(?P<to>\S.*)", re.IGNORECASE | re.DOTALL)
_CHANGE = re.compile(
    rf"{_POLITE}(?:correct|change|update)\s+(?P<what>(?:my|our|the|his|her|their)\s\S.*?)\s+(?:to|into)(?P<colon>:?)\s+(?P<to>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_REMEMBER = re.compile(
    rf"{_POLITE}(?:remember|memori[sz]e|keep in mind|do(?:n['’]?t| not) forget|note|make a note|take a note)"
    r"(?:\s+this\s*:|\s*:|\s+that\s+|\s+(?=(?:my|i|i['’]?m|we|our|the)\b))\s*(?P<text>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_NOTHING = frozenset(["it", "that", "this", "them", "these", "everything", "all", "about", "anything", "me"])
"""Words that name nothing: "forget it" means something else."""
_ALL = frozenset(["everything", "all", "anything"])
_FORGET_ALL = (
    "I forget one thing at a time, and show it first: say what it is about, such as “forget my code word”. In a "
    "terminal, `rem erase-user` erases everything of a user."
)
_SUBJECT = re.compile(
    r"(?P<subject>\S.*?)\s+"
    r"(?P<verb>is|are|was|were|am|has|have|lives?|works?|moved|starts?|leaves?|arrives?|costs?|likes?|=)(?!\S)",
    re.IGNORECASE | re.DOTALL,
)
MAX_TOPIC_WORDS = 4


@dataclass(frozen=True, slots=True)
class Command:
    """A request to change the memory, as the call of a tool."""

    tool: str
    arguments: dict[str, Any]


def parse_command(text: str) -> Command | None:
    """Return the tool call that a message asks for; None for any other message."""
    text = text.strip()
    if not text or len(text) > MAX_COMMAND_CHARS:
        return None
    sentences = split_sentences(text)
    if remembered := _REMEMBER.fullmatch(text):
        if len(sentences) > 1 and "?" in text:
            return None
        is_question = text.endswith("?") and not re.search(r"\byou\b", text[: remembered.start("text")], re.IGNORECASE)
        return None if is_question else Command("remember", {"text": remembered["text"].rstrip("?").strip()})
    if len(sentences) > 1:
        return None
    if corrected := _CORRECT.fullmatch(text):
        new_text = corrected["to"].strip()
        return Command("correct", {"what": _find_topic(new_text), "to": new_text})
    if changed := _CHANGE.fullmatch(text):
        what, value = changed["what"].strip(), changed["to"].strip()
        # "Correct my code word to: my code word is heron" gives the whole sentence.
        is_sentence = changed["colon"] and _SUBJECT.match(value)
        return Command("correct", {"what": what, "to": value if is_sentence else f"{_capitalize(what)} is {value}"})
    if forgotten := _FORGET.fullmatch(text):
        what = forgotten["what"].strip(" .!?")
        words = set(split_words(what))
        return Command("forget", {"what": what}) if words - _NOTHING or words & _ALL else None
    return None


def _capitalize(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def choose_step(
    question: str, tools: Collection[str], called: Collection[str], returned: Mapping[str, ToolReturnPart]
) -> ToolCallPart | str | None:
    """Return the next step for a message that asks to change the memory: a tool call or the answer. None for others."""
    command = parse_command(question)
    if command is None or command.tool not in tools:
        return None
    if command.tool == "forget" and not set(split_words(command.arguments["what"])) - _NOTHING:
        return _FORGET_ALL
    if command.tool not in called:
        return ToolCallPart(command.tool, command.arguments)
    result = _get_result(returned.get(command.tool))
    if command.tool == "correct" and result.get("status") == "not_found" and "remember" in tools:
        if "remember" not in called:
            return ToolCallPart("remember", {"text": command.arguments["to"]})
        return f"I had nothing to correct. {_describe_note(_get_result(returned.get('remember')))}"
    return _describe_note(result) if command.tool == "remember" else _describe_change(result)


def _get_result(part: ToolReturnPart | None) -> Mapping[str, Any]:
    if part is None:
        return {}
    return part.content if isinstance(part.content, Mapping) else {"message": str(part.content)}


def _describe_note(result: Mapping[str, Any]) -> str:
    if "key" not in result:
        return f"I could not keep that. {result.get('message') or result.get('error') or ''}".strip()
    return (
        f"{CONFIRMATION}{shorten(str(result.get('text', '')))}” (`{result['key']}`)\n\n"
        f"{NOTICE}, so I keep it word for word."
    )


def _describe_change(result: Mapping[str, Any]) -> str:
    text = result.get("summary") or result.get("message") or result.get("error")
    return str(text) if text else 'Say what it is about, in words that the text has, such as "my code word".'


def _find_topic(statement: str) -> str:
    """Return what a statement is about: the words before its verb, with the verb if they are only a pronoun."""
    match = _SUBJECT.match(statement)
    if match is None:
        return " ".join(statement.split()[:MAX_TOPIC_WORDS])
    subject = match["subject"]
    has_content = any(word not in FUNCTION_WORDS for word in split_words(subject))
    return subject if has_content else f"{subject} {match['verb']}"
