"""Compare chat through `rem serve` with a bare pydantic-ai agent, on the same model server without think time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import httpx2 as httpx

from bench.measure import Call, Result, measure_in_turns, print_progress
from bench.model_server import serve_model
from bench.rem_server import serve_rem
from rem import AgentContext, NewMessage, Rem, Role, Scope, Settings
from rem.tools.env import ToolEnv

if TYPE_CHECKING:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model

SIZES = (10, 100, 1_000, 10_000)
ROUNDS = 200
HISTORY_MESSAGES = 200
STREAM_COUNTS = (1, 10, 100)
WORDS_PER_ANSWER = 300
USER = "bench"
ResetSessions = Callable[[], Awaitable[None]]
TEXT = "What did we say about the plan for the harbour and the ferry? " * 2


async def run(home: Path, sizes: tuple[int, ...] = SIZES, rounds: int = ROUNDS) -> Result:
    """Measure the time to the first word, words per second, and the cost of a turn in short and long sessions."""
    result = Result("chat")
    with serve_model() as model:
        async with Rem.open(Settings(rem_home=home)) as rem:
            sessions = {size: await _store_session(rem, size) for size in {HISTORY_MESSAGES, *sizes}}
            print_progress("chat: indexing the messages ...")
            await rem.for_user(USER).index()
            bare_agent = await BareAgent.open(model, rem, sessions[HISTORY_MESSAGES])
            reset_sessions = partial(_delete_new_messages, rem, sessions)
            settings = {"LLM__BASE_URL": model, "LLM__DEFAULT_MODEL": "openai:bench"}
            with serve_rem(home, {**settings, "API__MAX_CHATS_PER_CALLER": str(max(STREAM_COUNTS))}) as address:
                limits = httpx.Limits(max_connections=200)
                headers = {"X-User-Id": USER}
                async with httpx.AsyncClient(base_url=address, timeout=120, headers=headers, limits=limits) as http:
                    await _measure_first_word(
                        result, http, bare_agent, sessions[HISTORY_MESSAGES], rounds, reset_sessions
                    )
                    await _measure_words_per_second(result, http, bare_agent)
                    await _measure_growth(
                        result, http, {size: sessions[size] for size in sizes}, rounds, reset_sessions
                    )
    return result


async def _delete_new_messages(rem: Rem, sessions: dict[int, UUID]) -> None:
    """Delete the messages of the last round: the model's library takes time for each message of the history."""
    async with rem.database.connection() as connection:
        for size, session_id in sessions.items():
            await connection.execute(
                "DELETE FROM rem.messages WHERE session_id = $1 AND message_index >= $2", session_id, size
            )


async def _store_session(rem: Rem, size: int) -> UUID:
    """Store a session of `size` messages. Ten of them fill the token budget of the history."""
    memory, session_id = rem.for_user(USER).sessions, uuid4()
    for first in range(0, size, 500):
        messages = [_build_message(number) for number in range(first, min(first + 500, size))]
        await memory.append(session_id, messages, create_session=True)
    return session_id


def _build_message(number: int) -> NewMessage:
    role = Role.ASSISTANT if number % 2 else Role.USER
    return NewMessage(role=role, content=f"Message {number}: {TEXT * (1 if role is Role.ASSISTANT else 20)}")


async def _measure_first_word(
    result: Result,
    http: httpx.AsyncClient,
    bare_agent: BareAgent,
    session_id: UUID,
    rounds: int,
    reset_sessions: ResetSessions,
) -> None:
    async def through_rem(_turn: int) -> None:
        body = {"messages": [{"role": "user", "content": "And now?"}], "stream": True}
        headers = {"X-Session-Id": str(session_id)}
        async with http.stream("POST", "/api/v1/chat/completions", json=body, headers=headers) as answer:
            async for line in answer.aiter_lines():
                if '"word' in line:
                    return
        raise AssertionError("the answer has no word")

    async def through_bare_agent(_turn: int) -> None:
        async for _ in bare_agent.iter_words(1):
            return

    calls: dict[str, Call] = {"rem": through_rem, "bare_agent": through_bare_agent}
    times = await measure_in_turns(calls, rounds, warm_up=20, after=reset_sessions)
    added = (times["rem"] - times["bare_agent"]) / 1000
    result.figures["first word"] = {**times, "added_milliseconds": round(added, 2), "stored_messages": HISTORY_MESSAGES}
    print_progress(f"chat, first word: {times}, {added:.1f} ms more")
    result.check("milliseconds that REM adds to the first word, with 200 stored messages", added, 10.0)


class BareAgent:
    """An agent with the same prompt, tools and history, without memory, server and events."""

    def __init__(self, agent: Agent[Any, Any], env: ToolEnv, model: Model, history: list[ModelMessage]) -> None:
        self._agent = agent
        self._deps = SimpleNamespace(env=env)
        """All that the instructions of the agent read. Its model calls no tool."""
        self._model = model
        self._history = history

    @classmethod
    async def open(cls, address: str, rem: Rem, session_id: UUID) -> BareAgent:
        """Return the agent `rem` on the model at `address`, with the history of a session."""
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        from rem.agents.catalog import AgentCatalog
        from rem.agents.factory import AgentFactory
        from rem.agents.model_input import history_from_session

        schema = await AgentCatalog(Settings(), None).get("rem", Scope())
        history = history_from_session((await rem.for_user(USER).sessions.get_history(session_id)).messages)
        model = OpenAIChatModel("bench", provider=OpenAIProvider(base_url=address, api_key="unused"))
        return cls(AgentFactory().build(schema), ToolEnv(AgentContext(), rem), model, history)

    async def iter_words(self, count: int) -> AsyncIterator[None]:
        """Yield once for each of `count` words of the model."""
        from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart

        async with self._agent.run_stream_events(
            "And now?",
            deps=self._deps,
            model=self._model,
            message_history=self._history if count == 1 else None,
            model_settings={"seed": count},
        ) as events:
            async for event in events:
                if isinstance(event, PartDeltaEvent) or (
                    isinstance(event, PartStartEvent) and isinstance(event.part, TextPart) and event.part.content
                ):
                    yield


async def _measure_words_per_second(result: Result, http: httpx.AsyncClient, bare_agent: BareAgent) -> None:
    async def through_rem() -> int:
        body = {
            "model": "rem",
            "messages": [{"role": "user", "content": "Speak."}],
            "seed": WORDS_PER_ANSWER,
            "stream": True,
        }
        words = 0
        async with http.stream("POST", "/api/v1/chat/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                words += '"word ' in line
        return words

    async def through_bare_agent() -> int:
        return len([None async for _ in bare_agent.iter_words(WORDS_PER_ANSWER)])

    for streams in STREAM_COUNTS:
        figures = {
            "rem": await _measure_rate(through_rem, streams),
            "bare_agent": await _measure_rate(through_bare_agent, streams),
        }
        result.figures[f"words a second, {streams} streams"] = figures
        print_progress(f"chat, words a second with {streams} streams: {figures}")


async def _measure_rate(read: Callable[[], Awaitable[int]], streams: int) -> int:
    """Return the words per second over all streams."""
    await asyncio.gather(*(read() for _ in range(min(streams, 10))))
    started = time.perf_counter()
    words = sum(await asyncio.gather(*(read() for _ in range(streams))))
    assert words == streams * WORDS_PER_ANSWER, f"{words} words"
    return round(words / (time.perf_counter() - started))


async def _measure_growth(
    result: Result, http: httpx.AsyncClient, sessions: dict[int, UUID], rounds: int, reset_sessions: ResetSessions
) -> None:
    def turn(session_id: UUID) -> Call:
        async def call(_number: int) -> None:
            body = {"messages": [{"role": "user", "content": "And now?"}]}
            answer = await http.post("/api/v1/chat/completions", json=body, headers={"X-Session-Id": str(session_id)})
            assert answer.status_code == 200

        return call

    times = await measure_in_turns(
        {str(size): turn(session) for size, session in sessions.items()}, rounds, warm_up=10, after=reset_sessions
    )
    result.figures["turn by stored messages"] = times
    print_progress(f"chat, a turn by stored messages: {times}")
    smallest, largest = min(sessions), max(sessions)
    growth = times[str(largest)] / times[str(smallest)]
    result.check(f"a turn with {largest:,} stored messages against one with {smallest}", growth, 1.2)
