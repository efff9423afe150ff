"""History: the newest whole turns of a session within a token budget."""

from __future__ import annotations

from uuid import UUID, uuid4

import asyncpg
import orjson
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from loguru import logger

from rem.app import Rem
from rem.errors import InvalidInputError, NotFoundError
from rem.models import Role
from rem.sessions.history import Strategy, fit_history
from rem.sessions.manager import MemoryManager
from rem.sessions.tokens import MESSAGE_OVERHEAD_TOKENS, count_tokens, truncate_to_tokens
from rem.settings import MemorySettings, Settings
from tests.sessions.sample_messages import add_turns, assistant_message, tool_call, user_message


async def test_history_has_the_newest_turns_that_fit(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 300)
    for budget in (100, 500, 2000):
        history = await alice.get_recent_messages(session_id, budget)
        assert history[0].role == Role.USER
        assert [line.index for line in history] == list(range(600 - len(history), 600))
        tokens = sum(line.tokens for line in history)
        assert budget * 0.8 < tokens <= budget
        assert tokens == sum(count_tokens(line.content) + MESSAGE_OVERHEAD_TOKENS for line in history)


async def test_token_budget_defaults_to_the_settings(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 400)
    tokens = sum(line.tokens for line in (await alice.begin_turn(session_id, user_message("?"))).history)
    assert 0.9 * 4096 < tokens <= alice.settings.max_history_tokens == 4096


async def test_shortened_answer_counts_with_its_shortened_length(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 30, "Word {} of many. " * 300)
    history = await alice.get_recent_messages(session_id, 4000)
    assert sum(line.tokens for line in history) <= 4000
    assert len(history) > 30, "the stored 1,500 tokens of an answer would leave room for two"


async def test_history_never_starts_within_a_turn(alice: MemoryManager, session_id: UUID) -> None:
    for turn in range(20):
        calls = [tool_call("search", f"c{turn}-{number}", {"query": f"cheese {number}"}) for number in range(turn % 5)]
        await alice.append(
            session_id,
            [user_message(f"Question {turn}"), *calls, assistant_message(f"Answer {turn}")],
            create_session=True,
        )
    for budget in range(20, 700, 13):
        history = await alice.get_recent_messages(session_id, budget)
        assert history[0].role == Role.USER
        assert history[-1].content == "Answer 19"
        assert len(history) == len({line.index for line in history})


async def test_too_long_turn_keeps_its_question_and_newest_messages(alice: MemoryManager, session_id: UUID) -> None:
    calls = [tool_call("search", f"c{number}", {"query": f"attempt {number}"}) for number in range(150)]
    await alice.append(
        session_id,
        [user_message("Old"), assistant_message("Gone"), user_message("Do it all"), *calls, assistant_message("Done")],
        create_session=True,
    )
    history = await alice.get_recent_messages(session_id, 300)
    assert history[0].content == "Do it all"
    assert history[-1].content == "Done"
    assert [line.index for line in history[1:]] == list(range(154 - len(history) + 1, 154))
    assert 5 < len(history) < 40


async def test_single_message_over_the_budget_is_included(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 2)
    long = "A very long question. " * 500
    await alice.append(session_id, [user_message(long), assistant_message("Yes.")])
    assert [line.content for line in await alice.get_recent_messages(session_id, 100)] == [long, "Yes."]


async def test_history_does_not_begin_with_an_answer(alice: MemoryManager, session_id: UUID) -> None:
    await alice.append(
        session_id,
        [assistant_message("Welcome!"), tool_call("t", "c", {}), user_message("Hi"), assistant_message("Hello")],
        create_session=True,
    )
    assert [line.content for line in await alice.get_recent_messages(session_id)] == ["Hi", "Hello"]


async def test_messages_without_a_token_count_are_counted(
    alice: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await add_turns(alice, session_id, 100)
    await sql.execute("UPDATE messages SET token_count = NULL")
    history = await alice.get_recent_messages(session_id, 500)
    assert 400 < sum(line.tokens for line in history) <= 500


async def test_deleted_and_expired_messages_are_not_in_the_history(
    alice: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await add_turns(alice, session_id, 3)
    await sql.execute("UPDATE messages SET deleted_at = now() WHERE message_index IN (2, 3)")
    await sql.execute("UPDATE messages SET expires_at = now() WHERE message_index = 5")
    assert [line.index for line in await alice.get_recent_messages(session_id)] == [0, 1, 4]
    assert [message.message_index for message in await alice.load_session(session_id)] == [0, 1, 4]


async def test_corrupt_row_is_skipped_and_the_session_continues(
    alice: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    messages = [
        user_message("One"),
        tool_call("t", "c1", {}),
        assistant_message("Two"),
        user_message("Three"),
        assistant_message("Four"),
    ]
    await alice.append(session_id, messages, create_session=True)
    await sql.execute("ALTER TABLE messages DROP CONSTRAINT role_is_known, DISABLE TRIGGER keep_content")
    await sql.execute("UPDATE messages SET role = 'ghost' WHERE message_index = 2")
    await sql.execute("""UPDATE messages SET tool_calls = '["x"]' WHERE message_index = 1""")
    logged: list[str] = []
    sink = logger.add(lambda line: logged.append(str(line)), level="ERROR")
    try:
        turn = await alice.begin_turn(session_id, user_message("Five"))
        read = await alice.load_session(session_id)
    finally:
        logger.remove(sink)
    assert [line.content for line in turn.history] == ["One", "Three", "Four"]
    assert [message.content for message in read] == ["One", "", "Three", "Four", "Five"]
    assert f"session-{session_id}-msg-2" in "".join(logged)
    assert "Two" not in "".join(logged)


@pytest.mark.parametrize("strategy", ["simple", "hybrid"])
async def test_cost_of_a_turn_does_not_grow_with_the_session(
    alice: MemoryManager, sql: asyncpg.Connection[asyncpg.Record], strategy: Strategy
) -> None:
    """Measured in database pages, because times depend on the load of the machine."""
    touched = {}
    for turns in (250, 5000):
        session_id = uuid4()
        await alice.append(
            session_id, [user_message(f"We decided to buy {number} cows.") for number in range(40)], create_session=True
        )
        await add_turns(alice, session_id, turns)
        for _ in range(4):
            await alice.refresh_summary(session_id, strategy="hybrid")
        assert await alice.get_summary(session_id)
        touched[turns] = min([await _pages_of_a_turn(alice, sql, session_id, strategy) for _ in range(3)])
    assert touched[5000] < touched[250] * 1.5, touched


async def _pages_of_a_turn(
    memory: MemoryManager, sql: asyncpg.Connection[asyncpg.Record], session_id: UUID, strategy: Strategy
) -> int:
    plan = await sql.fetchval(
        """EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
           SELECT rem_begin_turn($1, $2, $3, NULL, NULL, $4::json, 1, 4096, $5, NULL)""",
        *(memory.scope.tenant_id, memory.scope.user_id, session_id),
        f'[{{"id": "{uuid4()}", "role": "user", "content": "x", "tool_calls": [], "metadata": {{}}}}]',
        strategy,
    )
    root = orjson.loads(plan)[0]["Plan"]
    return int(root["Shared Hit Blocks"] + root["Shared Read Blocks"])


async def test_cleared_session_is_not_scanned_to_its_beginning(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 1500)
    await alice.clear_session(session_id)
    await add_turns(alice, session_id, 2)
    assert [line.index for line in await alice.get_recent_messages(session_id)] == [3000, 3001, 3002, 3003]


_STRATEGIES = pytest.mark.parametrize("strategy", ["simple", "summarization", "hybrid"])


@_STRATEGIES
async def test_empty_session_works_like_any_other(alice: MemoryManager, strategy: Strategy) -> None:
    session = await alice.create_session()
    assert await alice.get_recent_messages(session.id, strategy=strategy) == []
    turn = await alice.begin_turn(session.id, user_message("Hello"), strategy=strategy)
    assert (turn.is_new, turn.history, turn.summary) == (False, [], None)


@_STRATEGIES
async def test_cleared_session_can_continue(alice: MemoryManager, session_id: UUID, strategy: Strategy) -> None:
    await add_turns(alice, session_id, 100)
    await alice.refresh_summary(session_id, strategy=strategy, max_tokens=400)
    await alice.clear_session(session_id)
    turn = await alice.begin_turn(session_id, user_message("Anew"), strategy=strategy, max_tokens=400)
    assert (turn.history, turn.summary) == ([], None)
    assert len((await alice.begin_turn(session_id, user_message("Again"), strategy=strategy)).history) == 1


@_STRATEGIES
@pytest.mark.parametrize("length", [5, 390, 5000])
async def test_newest_message_over_the_budget_does_not_end_the_session(
    alice: MemoryManager, session_id: UUID, strategy: Strategy, length: int
) -> None:
    await alice.append(session_id, [user_message("Tell me all"), assistant_message("Ж~" * length)], create_session=True)
    for budget in (1, 10, 100):
        turn = await alice.begin_turn(session_id, user_message("Go on"), strategy=strategy, max_tokens=budget)
        assert turn.history[0].begins_turn
        await alice.append(session_id, [tool_call("t", "c", {}), assistant_message("Ж~" * length)])
        await alice.refresh_summary(session_id, strategy=strategy, max_tokens=budget)


@_STRATEGIES
async def test_small_budget_in_the_settings_is_enough_for_a_session(
    settings: Settings, session_id: UUID, strategy: Strategy
) -> None:
    small = settings.model_copy(update={"memory": MemorySettings(strategy=strategy, max_history_tokens=100)})
    async with Rem.open(small) as rem:
        memory = rem.for_user("alice@example.com").sessions
        for number in range(5):
            await memory.begin_turn(session_id, user_message(f"Question {number}"))
            await memory.append(session_id, [assistant_message("A long answer. " * 200)])
            await memory.refresh_summary(session_id)
        history = (await memory.begin_turn(session_id, user_message("And?"))).history
    assert [line.index for line in history] == [8, 9]


async def test_shortened_answers_are_given_whole_again(alice: MemoryManager, session_id: UUID) -> None:
    texts = [f"Answer {number}: " + "cheese " * 300 for number in range(6)]
    for text in texts:
        await alice.append(session_id, [user_message("More?"), assistant_message(text)], create_session=True)
    history = await alice.get_recent_messages(session_id)
    assert sum(line.is_truncated for line in history) == 6
    expanded = await alice.expand_history(session_id, history, 100_000)
    assert [line.content for line in expanded if line.role == Role.ASSISTANT] == texts
    assert not any(line.is_truncated for line in expanded)
    assert [line.index for line in expanded] == [line.index for line in history]
    assert sum(line.tokens for line in expanded) == sum(
        count_tokens(line.content) + MESSAGE_OVERHEAD_TOKENS for line in expanded
    )
    some = await alice.expand_history(session_id, history, 1500)
    assert [line.is_truncated for line in some if line.role == Role.ASSISTANT] == [*[True] * 2, *[False] * 4]
    assert sum(line.tokens for line in some) <= 1500
    assert await alice.expand_history(session_id, history, 1) == history
    assert await alice.expand_history(session_id, []) == []


async def test_an_answer_that_is_too_long_stays_short_and_older_ones_come_back(
    alice: MemoryManager, bob: MemoryManager, session_id: UUID
) -> None:
    small, huge = "cheese " * 100, "cheese " * 5000
    await alice.append(
        session_id,
        [user_message("One"), assistant_message(small), user_message("Two"), assistant_message(huge)],
        create_session=True,
    )
    history = await alice.get_recent_messages(session_id)
    expanded = await alice.expand_history(session_id, history)
    assert [(line.content == small, line.is_truncated) for line in expanded if line.role == Role.ASSISTANT] == [
        (True, False),
        (False, True),
    ]
    assert await bob.expand_history(session_id, history) == history, "it is Alice's"
    await alice.clear_session(session_id)
    assert await alice.expand_history(session_id, history) == history, "what was deleted does not come back"


async def test_a_budget_is_a_positive_number(alice: MemoryManager, session_id: UUID) -> None:
    for budget in (0, -1, 3_000_000):
        with pytest.raises(InvalidInputError, match="max_tokens"):
            await alice.begin_turn(session_id, user_message("x"), max_tokens=budget)
    with pytest.raises(NotFoundError):
        await alice.get_recent_messages(session_id)


_LINES = st.lists(
    st.tuples(st.sampled_from(["user", "assistant", "tool", "system"]), st.integers(0, 400), st.booleans()),
    max_size=40,
)


@examples(deadline=None)
@given(_LINES, st.integers(1, 3000), st.sampled_from(["simple", "hybrid"]))
def test_whatever_was_said_the_history_is_usable(
    lines: list[tuple[str, int, bool]], budget: int, strategy: Strategy
) -> None:
    session_id = uuid4()
    newest_first = [
        [index, role, "x", "t" if role == "tool" else None, None, None, None, False, tokens, important, str(uuid4())]
        for index, (role, tokens, important) in enumerate(lines)
    ][::-1]
    selection = {"history": newest_first, "kept": [], "summary": None}
    fitted = fit_history(session_id, selection, budget, strategy)
    history = fitted.messages
    indexes = [line.index for line in history]
    assert indexes == sorted(set(indexes))
    starts = [index for index, (role, _, _) in enumerate(lines) if role in ("user", "system")]
    assert bool(history) == bool(starts)
    if history:
        assert history[0].begins_turn or fitted.summary
        assert indexes[-1] == len(lines) - 1
        turn = [line for line in history if line.index >= starts[-1]]
        assert sum(line.tokens for line in history) <= budget or len(turn) <= 2 or len(history) == len(turn)


def test_tokens_are_those_of_the_tokenizer() -> None:
    counts = {"": 0, "word": 1, "tiktoken is great!": 6, "<|endoftext|>": 7}
    assert {text: count_tokens(text) for text in counts} == counts


def test_the_tokens_of_a_huge_text_are_estimated_closely() -> None:
    words = "The quick brown fox jumps over the lazy dog, again and again. "
    assert count_tokens(words * 20_000) == pytest.approx(count_tokens(words * 100) * 200, rel=0.02)
    assert count_tokens("a" * 5_000_000) >= 5_000_000 // 16


def test_a_text_is_cut_at_a_word() -> None:
    text = "one two three four five six seven eight nine ten " * 50
    short = truncate_to_tokens(text, 20)
    assert text.startswith(short)
    assert 15 <= count_tokens(short) <= 20
    assert short.endswith(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"))
    assert truncate_to_tokens("short", 20) == "short"
    assert count_tokens(truncate_to_tokens("🎉" * 1000, 20)) <= 20


@pytest.mark.parametrize("strategy", ["simple", "summarization", "hybrid"])
async def test_started_over_session_has_only_later_messages_in_its_history(
    alice: MemoryManager, session_id: UUID, strategy: Strategy
) -> None:
    await add_turns(alice, session_id, 300)
    await alice.flag_message(session_id, 0)
    await alice.refresh_summary(session_id, strategy=strategy, max_tokens=500)
    assert await alice.start_over(session_id) == 600
    assert (await alice.get_history(session_id, 500, strategy=strategy)).messages == []
    await add_turns(alice, session_id, 2)
    history = await alice.get_history(session_id, 500, strategy=strategy)
    assert [line.index for line in history.messages] == [600, 601, 602, 603]
    assert history.summary is None
    assert len(await alice.load_session(session_id)) == 604
    with pytest.raises(NotFoundError):
        await alice.start_over(uuid4())
