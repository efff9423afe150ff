"""MemoryRun: the answer of the default agent without a language model. The memory itself answers.

What a message asks for is answered by the answer engine; what it tells is noted, because every message is stored.
`/remember`, `/forget` and `/correct` change the memory, also written as "remember that …" or "remember: …", "forget …"
and "correct: …".
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import UUID

from rem.agents.chat import ClientToolCall, FinishReason, Usage
from rem.agents.decisions import parse_confirmation
from rem.agents.model_registry import LOCAL_MODEL
from rem.agents.tool_gaps import ToolGapReport
from rem.answers.sources import shorten
from rem.approvals.approvals import Origin
from rem.approvals.cards import make_card
from rem.audit.entry import note_tool
from rem.errors import InvalidInputError, NotFoundError, RemError
from rem.events import ActionRequestEvent, AnyEvent, MetadataEvent, TextEvent
from rem.models import Approval
from rem.models.results import Answer
from rem.search.reader import MessageType
from rem.tools.binding import ToolFunction, check_effect
from rem.tools.consent import describe_question, require_visible_question
from rem.tools.control import correct, forget, remember
from rem.tools.env import ToolEnv

MAX_COMMAND_CHARS = 20_000
MAX_TOPIC_CHARS = 500
MAX_SOURCES = 10
NO_REQUEST = "No request waits for your answer here, so nothing was changed."
MAX_QUOTED_CHARS = 200
GREETING = "Tell me something, and I note it; ask me, and I look for it."
_TOOLS: dict[str, ToolFunction] = {"remember": remember, "forget": forget, "correct": correct}
NO_MEMORY = "No language model is configured, and there is no database to answer from: set `LLM__DEFAULT_MODEL`."
HOW_TO = "Say what: `/remember my bike is red`, `/forget my code word`, `/correct my flight is SK1427`."
_ASK = re.compile(r"\A\s*/ask\s+(?P<text>\S.*)\Z", re.IGNORECASE | re.DOTALL)
_COMMAND = re.compile(
    r"\A\s*(?:/(?P<slash>remember|forget|correct)\b|(?P<remember>remember(?: that\b|(?=:)))|(?P<forget>forget)\b"
    r"|(?P<correct>correct)(?=:))[ :]*(?P<text>.*)\Z",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Command:
    """A request to change the memory."""

    verb: Literal["remember", "forget", "correct"]
    text: str


def parse_command(message: str) -> Command | None:
    """Return the change that a message asks for by its first words; None for any other message."""
    match = _COMMAND.match(message[:MAX_COMMAND_CHARS])
    if match is None:
        return None
    verb = next(
        name for name in ("remember", "forget", "correct") if match[name] or (match["slash"] or "").lower() == name
    )
    return Command(verb, match["text"].strip())  # type: ignore[arg-type]  # one of the three names


class MemoryRun:
    """One answer from the memory, without a model."""

    usage = Usage()
    tool_gaps: list[ToolGapReport] = []  # noqa: RUF012  # never changed
    client_calls: Sequence[ClientToolCall] = ()

    def __init__(self, env: ToolEnv, message: str, agent: str, *, previous: str = "") -> None:
        """Prepare the answer. `previous` is the message of the user before this one."""
        self.agent = agent
        self.model = LOCAL_MODEL
        self.finish_reason: FinishReason = "stop"
        self.output: dict[str, Any] | None = None
        self.approval: Approval | None = None
        self._env = env
        self._message = message
        self._previous = previous

    async def events(self) -> AsyncGenerator[AnyEvent]:
        """Yield the answer, with its confidence and its sources."""
        if self._env.memory is None:
            yield self._say(NO_MEMORY)
            return
        command = parse_command(self._message)
        if parse_confirmation(self._message) is not None:
            yield self._say(NO_REQUEST)
        elif command is None:
            async for event in self._answer():
                yield event
        elif not command.text:
            yield self._say(HOW_TO)
        elif (refusal := self._find_refusal(command)) is not None:
            yield self._say(refusal)
        elif command.verb == "remember":
            yield self._say(await self._remember(command.text))
        else:
            async for event in self._change(command):
                yield event

    def _find_refusal(self, command: Command) -> str | None:
        """Return why the memory must not be changed now; None if it may be. The rules are those of the tools."""
        note_tool(command.verb, is_read_only=False)
        try:
            if command.verb != "remember":
                require_visible_question(replace(self._env, is_chat=True))
            return check_effect(_TOOLS[command.verb], self._env)
        except RemError as error:
            return str(error)

    async def _answer(self) -> AsyncIterator[AnyEvent]:
        """Answer what is asked. A message that is taken for a statement by mistake is asked again with `/ask`."""
        asked = _ASK.match(self._message)
        memory = self._env.rem.for_user(self._env.scope)
        reply: Answer | MessageType
        if asked is not None:
            reply = await memory.ask(asked["text"], previous=self._previous)
        else:
            reply = await memory.reply(self._message, previous=self._previous)
        if isinstance(reply, MessageType):
            noted = (
                f"Noted: “{shorten(self._message.strip(), MAX_QUOTED_CHARS)}” (If you asked, write `/ask` before it.)"
            )
            yield self._say(GREETING if reply is MessageType.SMALL_TALK else noted)
            return
        yield self._note(reply)
        told = "".join(f"\n({note.text})" for note in reply.notes if note.code == "maybe_told")
        yield self._say(reply.text + told)

    async def _change(self, command: Command) -> AsyncIterator[AnyEvent]:
        """Show what would be forgotten or corrected, and ask the user. Nothing is changed before."""
        changes = self._env.rem.for_user(self._env.scope).changes
        session = self._env.context.session_id
        session_id = None if session is None else UUID(session)
        topic = command.text[:MAX_TOPIC_CHARS]
        try:
            if command.verb == "forget":
                change = await changes.find_forget(topic, session_id=session_id)
            else:
                change = await changes.find_correction(_drop_values(topic), command.text, session_id=session_id)
        except (NotFoundError, InvalidInputError) as error:
            yield self._say(str(error) if command.verb == "forget" else await self._remember(command.text))
            return
        if command.verb == "correct" and not change.is_exact:
            # Answers show the newest statement first, so that nothing needs to be overwritten by a guess.
            yield self._say(await self._remember(command.text))
            return
        proposal = change.proposal
        approvals = self._env.rem.for_user(self._env.scope).approvals
        self.approval = await approvals.request(proposal, Origin(session_id, self.agent, None))
        question = describe_question(self.approval, len(proposal.rows))
        yield self._say(f"{proposal.preview}\n\n{question}\n")
        card = make_card(self.approval, proposal.preview, len(proposal.rows))
        yield ActionRequestEvent(card=card, agent=self.agent)

    async def _remember(self, text: str) -> str:
        stored = await self._env.rem.for_user(self._env.scope).remember(text)
        return f"Noted: “{stored.content}”"

    def _say(self, text: str) -> TextEvent:
        return TextEvent(content=text, agent=self.agent)

    def _note(self, answer: Answer) -> MetadataEvent:
        sources = list(dict.fromkeys(hit.key for hit in answer.hits))[:MAX_SOURCES]
        return MetadataEvent(
            agent=self.agent,
            confidence=round(answer.confidence, 2),
            sources=sources or None,
            extra={"status": answer.status, "rows": len(answer.hits)},
        )


def _drop_values(text: str) -> str:
    """Return a statement without words with digits: what is corrected has the other words, and another value."""
    return " ".join(word for word in text.split() if not any(character.isdigit() for character in word))
