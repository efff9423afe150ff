"""Summaries are written once and stored, and never contain deleted messages."""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg
import pytest
from loguru import logger

from rem.app import Rem
from rem.models import Message, Role
from rem.sessions.extractive_summary import extract_summary, is_important
from rem.sessions.manager import MemoryManager
from rem.sessions.message import NewMessage
from rem.sessions.tokens import count_tokens
from rem.settings import Settings
from tests.sessions.sample_messages import add_turns, assistant_message, user_message

_BUDGET = 400


class Summarizer:
    """A stand-in for a language model that repeats its input."""

    def __init__(self, answer: str = "They talked about cheese.") -> None:
        self.calls: list[tuple[str | None, list[int]]] = []
        self.answer = answer

    async def __call__(self, previous: str | None, messages: list[Message]) -> str:
        self.calls.append((previous, [message.message_index for message in messages]))
        return f"{self.answer} ({len(self.calls)})"


async def refresh(memory: MemoryManager, session_id: UUID, summarize: Summarizer | None = None) -> str | None:
    return await memory.refresh_summary(session_id, summarize, strategy="summarization", max_tokens=_BUDGET)


async def test_old_messages_are_summarized_once_without_a_gap(alice: MemoryManager, session_id: UUID) -> None:
    model = Summarizer()
    for turn in range(60):
        begun = await alice.begin_turn(
            session_id, user_message(f"Question {turn}, about cheese?"), strategy="summarization", max_tokens=_BUDGET
        )
        indexes = [line.index for line in begun.history]
        summarised = max((index for _, given in model.calls for index in given), default=-1)
        assert indexes == list(range(summarised + 1, turn * 2)), "neither twice nor left out"
        assert begun.summary == (f"They talked about cheese. ({len(model.calls)})" if model.calls else None)
        await alice.append(session_id, [assistant_message(f"Answer {turn}, it is a cheese of the mountains.")])
        await refresh(alice, session_id, model)
    assert 3 < len(model.calls) < 20, "not for every turn"
    every = [index for _, given in model.calls for index in given]
    assert every == list(range(len(every)))
    assert [previous for previous, _ in model.calls[:2]] == [None, "They talked about cheese. (1)"]


async def test_history_with_summary_stays_within_the_budget(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 100)
    assert await refresh(alice, session_id)
    history = await alice.get_history(session_id, _BUDGET, strategy="summarization")
    assert history.summary
    used = count_tokens(history.summary) + sum(line.tokens for line in history.messages)
    assert used <= _BUDGET
    assert history.messages[0].role == Role.USER


async def test_too_long_model_summary_is_truncated(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 100)
    summary = await refresh(alice, session_id, Summarizer("A word and another. " * 500))
    assert summary is not None
    assert 50 < count_tokens(summary) <= _BUDGET // 4


async def test_short_session_has_no_summary(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 3)
    assert await refresh(alice, session_id) is None
    assert await alice.get_summary(session_id) is None
    await add_turns(alice, session_id, 100)
    assert await alice.refresh_summary(session_id, max_tokens=_BUDGET) is None, "the strategy is simple"


async def test_two_processes_write_one_summary(settings: Settings, alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 100)
    slow, fast = Summarizer(), Summarizer()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(previous: str | None, messages: list[Message]) -> str:
        begun.set()
        await go_on.wait()
        return await slow(previous, messages)

    async with Rem.open(settings) as elsewhere:
        other = elsewhere.for_user(alice.scope).sessions
        working = asyncio.create_task(alice.refresh_summary(session_id, slowly, strategy="hybrid", max_tokens=_BUDGET))
        await begun.wait()
        assert await refresh(other, session_id, fast) is None
        go_on.set()
        assert await working
        assert await other.get_summary(session_id) == await working
    assert fast.calls == []


class Failing(Summarizer):
    """A stand-in for a language model that is down."""

    async def __call__(self, previous: str | None, messages: list[Message]) -> str:
        await super().__call__(previous, messages)
        raise TimeoutError("the model is down")


class Silent(Summarizer):
    """A stand-in for a language model that returns an empty text."""

    async def __call__(self, previous: str | None, messages: list[Message]) -> str:
        await super().__call__(previous, messages)
        return " \n"


@pytest.mark.parametrize("kind", [Failing, Silent])
async def test_failing_model_is_replaced_by_extraction(
    alice: MemoryManager, session_id: UUID, kind: type[Summarizer]
) -> None:
    await alice.append(
        session_id, [user_message("We decided to move to Rotterdam."), assistant_message("Good.")], create_session=True
    )
    # More than one stretch, so that a model that takes its time to fail would be asked twice.
    await add_turns(alice, session_id, 250)
    model = kind()
    logged: list[str] = []
    sink = logger.add(lambda line: logged.append(str(line)), level="WARNING")
    try:
        summary = await refresh(alice, session_id, model)
    finally:
        logger.remove(sink)
    assert summary
    assert "Rotterdam" in summary
    assert summary == await alice.get_summary(session_id)
    assert "summarizer failed" in "".join(logged)
    assert len(model.calls) == 1
    for _ in range(3):
        await alice.begin_turn(session_id, user_message("And now?"), strategy="hybrid", max_tokens=_BUDGET)
        assert await refresh(alice, session_id, model) is None
    assert len(model.calls) == 1, "not with every turn"


async def test_extraction_keeps_the_text_of_an_earlier_model_summary(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 60)
    assert await refresh(alice, session_id, Summarizer("The user plans a cheese shop in Rotterdam."))
    for _ in range(2):
        await add_turns(alice, session_id, 60)
        summary = await refresh(alice, session_id, Failing())
        assert summary is not None
        assert summary.startswith("The user plans a cheese shop in Rotterdam. (1)\n- ")
        assert count_tokens(summary) <= _BUDGET // 4


async def test_cancelled_model_call_is_not_replaced_by_extraction(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 100)

    async def cancelled(_previous: str | None, _messages: list[Message]) -> str:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await alice.refresh_summary(session_id, cancelled, strategy="hybrid", max_tokens=_BUDGET)
    assert await alice.get_summary(session_id) is None
    assert await refresh(alice, session_id), "the claim was given back"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE messages SET deleted_at = now() WHERE message_index = 4",
        "DELETE FROM messages WHERE message_index = 4",
        "UPDATE messages SET expires_at = now() WHERE message_index = 4",
    ],
)
async def test_summary_does_not_contain_deleted_messages(
    alice: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record], statement: str
) -> None:
    await alice.append(
        session_id,
        [user_message("Hi"), assistant_message("Hello"), user_message("Well"), assistant_message("Yes?")],
        create_session=True,
    )
    await alice.append(
        session_id, [user_message("Remember that my password for the vault is swordfish."), assistant_message("Noted.")]
    )
    await add_turns(alice, session_id, 60)
    assert "swordfish" in str(await refresh(alice, session_id))
    await sql.execute(statement)
    history = await alice.get_history(session_id, _BUDGET, strategy="hybrid")
    assert "swordfish" not in str(history)
    assert "swordfish" not in str(await refresh(alice, session_id))
    assert await alice.get_summary(session_id), "it was made anew"


async def test_message_deleted_while_it_is_summarized_is_not_in_the_summary(
    alice: MemoryManager, session_id: UUID
) -> None:
    await add_turns(alice, session_id, 60)

    async def deletes(_previous: str | None, messages: list[Message]) -> str:
        await alice.store.delete(messages[0])
        return "It told everything."

    assert await alice.refresh_summary(session_id, deletes, strategy="hybrid", max_tokens=_BUDGET) is None
    assert await alice.get_summary(session_id) is None


async def test_long_imported_session_is_summarized_over_several_refreshes(
    alice: MemoryManager, session_id: UUID
) -> None:
    await add_turns(alice, session_id, 1200)
    first, second = Summarizer(), Summarizer()
    await refresh(alice, session_id, first)
    await refresh(alice, session_id, second)
    given = [index for _, indexes in first.calls + second.calls for index in indexes]
    assert given == list(range(len(given)))
    assert len(given) > 2300
    assert len(first.calls) == 10


async def test_extraction_selects_informative_sentences_with_their_keys(alice: MemoryManager, session_id: UUID) -> None:
    await alice.append(
        session_id,
        [
            user_message("Hi there!"),
            assistant_message("Hello."),
            user_message("We decided to move the warehouse from Hamburg to Rotterdam in June. Fine?"),
            assistant_message("Good."),
            user_message("The Rotterdam warehouse costs 40,000 euros a month."),
            assistant_message("Okay. Anything else?"),
            user_message("No."),
            assistant_message("Bye."),
        ],
        create_session=True,
    )
    messages = await alice.load_session(session_id)
    summary = extract_summary(None, messages, 120)
    assert f"Rotterdam in June. [session-{session_id}-msg-2]" in summary
    assert "Bye" not in summary
    assert count_tokens(summary) <= 120
    assert summary == extract_summary(None, messages, 120), "always the same"
    more = extract_summary(summary, messages[:2], 120)
    assert f"[session-{session_id}-msg-2]" in more, "what was there is weighed with what is new"
    assert extract_summary(None, [], 100) == ""


async def test_extraction_handles_any_script_and_any_text(alice: MemoryManager, session_id: UUID) -> None:
    texts = ["这是第一句。我们决定搬到鹿特丹！好", "." * 4000, "!?" * 2000 + " x", "One line\nv1.2.3 is out. Good"]
    await alice.append(session_id, [user_message(text) for text in texts], create_session=True)
    lines = extract_summary(None, await alice.load_session(session_id), 1000).splitlines()
    assert [line.removeprefix("- user: ").rpartition(" ")[0] for line in lines] == [
        *("这是第一句。", "我们决定搬到鹿特丹！", "One line", "v1.2.3 is out.", "Good"),
    ]


async def test_hybrid_keeps_system_messages_decisions_facts_and_flagged_messages(
    alice: MemoryManager, session_id: UUID
) -> None:
    prompt = NewMessage(role=Role.SYSTEM, content="You are a cheese expert.")
    await alice.append(session_id, [prompt], create_session=True)
    await alice.append(session_id, [user_message("We decided to use Gouda."), assistant_message("Good.")])
    await add_turns(alice, session_id, 20)
    await alice.append(session_id, [user_message("Nothing special"), assistant_message("The code is 1234.")])
    await alice.flag_message(session_id, 44)
    await add_turns(alice, session_id, 100)
    await alice.refresh_summary(session_id, strategy="hybrid", max_tokens=_BUDGET)
    turn = await alice.begin_turn(session_id, user_message("And now?"), strategy="hybrid", max_tokens=_BUDGET)
    contents = [line.content for line in turn.history]
    assert contents[:3] == ["You are a cheese expert.", "We decided to use Gouda.", "The code is 1234."]
    assert turn.summary
    assert [line.index for line in turn.history[3:]] == list(range(245 - len(contents[3:]), 245))
    assert sum(line.tokens for line in turn.history) + count_tokens(turn.summary) <= _BUDGET
    simple = await alice.get_history(session_id, _BUDGET, strategy="simple")
    assert "We decided to use Gouda." not in [line.content for line in simple.messages]
    await alice.flag_message(session_id, 44, important=False)
    unflagged = await alice.get_history(session_id, _BUDGET, strategy="hybrid")
    assert "The code is 1234." not in [line.content for line in unflagged.messages]


async def test_kept_messages_use_only_their_share_of_the_budget(alice: MemoryManager, session_id: UUID) -> None:
    for number in range(80):
        await alice.append(
            session_id,
            [user_message(f"We decided to buy {number} cows."), assistant_message("Fine.")],
            create_session=True,
        )
    await alice.refresh_summary(session_id, strategy="hybrid", max_tokens=_BUDGET)
    history = (await alice.get_history(session_id, _BUDGET, strategy="hybrid")).messages
    assert sum(line.tokens for line in history) <= _BUDGET
    assert sum(line.role == Role.ASSISTANT for line in history) >= 5, "the newest turns are there, too"


@pytest.mark.parametrize(
    "text",
    [
        "We've decided on Tuesday.",
        "Let’s go with plan B",
        "Remember that I park at home",
        "My name is Ada",
        "I'm allergic to nuts",
        "Decision: ship it",
        "The deadline is Friday",
    ],
)
def test_decisions_and_facts_are_important(text: str) -> None:
    assert is_important(text)


@pytest.mark.parametrize("text", ["What did you decide?", "Hello", "", "It rains", "I use a deck", "x" * 10**6])
def test_small_talk_is_not_important(text: str) -> None:
    assert not is_important(text)
