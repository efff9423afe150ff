"""What of a long conversation the model is given: the newest turns, whole, within the budget."""

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
from rem.memory.history import Strategy, fit_history
from rem.memory.manager import MemoryManager
from rem.memory.tokens import MESSAGE_OVERHEAD_TOKENS, count_tokens, truncate_to_tokens
from rem.models import Role
from rem.settings import MemorySettings, Settings
from tests.memory.sample_messages import answered, called, said, talk


async def test_the_newest_turns_that_fit_are_given(ours: MemoryManager, session_id: UUID) -> None:
    await talk(ours, session_id, 300)
    for budget in (100, 500, 2000):
        history = await ours.get_recent_messages(session_id, budget)
        assert history[0].role == Role.USER
        assert [line.index for line in history] == list(range(600 - len(history), 600))
        tokens = sum(line.tokens for line in history)
        assert budget * 0.8 < tokens <= budget
        assert tokens == sum(count_tokens(line.content) + MESSAGE_OVERHEAD_TOKENS for line in history)


async def test_the_settings_say_how_much_if_the_caller_does_not(ours: MemoryManager, session_id: UUID) -> None:
    await talk(ours, session_id, 400)
    tokens = sum(line.tokens for line in (await ours.begin_turn(session_id, said("?"))).history)
    assert 0.9 * 4096 < tokens <= ours.settings.max_history_tokens == 4096


async def test_a_shortened_answer_counts_as_it_is_given(ours: MemoryManager, session_id: UUID) -> None:
    await talk(ours, session_id, 30, "Word {} of many. " * 300)
    history = await ours.get_recent_messages(session_id, 4000)
    assert sum(line.tokens for line in history) <= 4000
    assert len(history) > 30, "the stored 1,500 tokens of an answer would leave room for two"


async def test_a_turn_is_not_cut_so_that_a_call_stands_alone(ours: MemoryManager, session_id: UUID) -> None:
    for turn in range(20):
        calls = [called("search", f"c{turn}-{place}", {"query": f"cheese {place}"}) for place in range(turn % 5)]
        await ours.append(session_id, [said(f"Question {turn}"), *calls, answered(f"Answer {turn}")], creates=True)
    for budget in range(20, 700, 13):
        history = await ours.get_recent_messages(session_id, budget)
        assert history[0].role == Role.USER
        assert history[-1].content == "Answer 19"
        assert len(history) == len({line.index for line in history})


async def test_of_a_turn_that_is_too_long_the_question_and_the_newest_part_are_given(
    ours: MemoryManager, session_id: UUID
) -> None:
    calls = [called("search", f"c{place}", {"query": f"attempt {place}"}) for place in range(150)]
    await ours.append(
        session_id, [said("Old"), answered("Gone"), said("Do it all"), *calls, answered("Done")], creates=True
    )
    history = await ours.get_recent_messages(session_id, 300)
    assert history[0].content == "Do it all"
    assert history[-1].content == "Done"
    assert [line.index for line in history[1:]] == list(range(154 - len(history) + 1, 154))
    assert 5 < len(history) < 40


async def test_a_message_over_the_budget_is_given_nevertheless(ours: MemoryManager, session_id: UUID) -> None:
    await talk(ours, session_id, 2)
    long = "A very long question. " * 500
    await ours.append(session_id, [said(long), answered("Yes.")])
    assert [line.content for line in await ours.get_recent_messages(session_id, 100)] == [long, "Yes."]


async def test_a_history_does_not_begin_with_an_answer(ours: MemoryManager, session_id: UUID) -> None:
    await ours.append(
        session_id, [answered("Welcome!"), called("t", "c", {}), said("Hi"), answered("Hello")], creates=True
    )
    assert [line.content for line in await ours.get_recent_messages(session_id)] == ["Hi", "Hello"]


async def test_messages_without_a_count_are_counted(
    ours: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await talk(ours, session_id, 100)
    await sql.execute("UPDATE messages SET token_count = NULL")
    history = await ours.get_recent_messages(session_id, 500)
    assert 400 < sum(line.tokens for line in history) <= 500


async def test_what_was_deleted_or_has_lapsed_is_not_given(
    ours: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await talk(ours, session_id, 3)
    await sql.execute("UPDATE messages SET deleted_at = now() WHERE message_index IN (2, 3)")
    await sql.execute("UPDATE messages SET expires_at = now() WHERE message_index = 5")
    assert [line.index for line in await ours.get_recent_messages(session_id)] == [0, 1, 4]
    assert [message.message_index for message in await ours.load_session(session_id)] == [0, 1, 4]


async def test_a_corrupt_row_is_left_out_and_the_conversation_goes_on(
    ours: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    messages = [said("One"), called("t", "c1", {}), answered("Two"), said("Three"), answered("Four")]
    await ours.append(session_id, messages, creates=True)
    await sql.execute("ALTER TABLE messages DROP CONSTRAINT role_is_known, DISABLE TRIGGER keep_content")
    await sql.execute("UPDATE messages SET role = 'ghost' WHERE message_index = 2")
    await sql.execute("""UPDATE messages SET tool_calls = '["x"]' WHERE message_index = 1""")
    logged: list[str] = []
    sink = logger.add(lambda line: logged.append(str(line)), level="ERROR")
    try:
        turn = await ours.begin_turn(session_id, said("Five"))
        read = await ours.load_session(session_id)
    finally:
        logger.remove(sink)
    assert [line.content for line in turn.history] == ["One", "Three", "Four"]
    assert [message.content for message in read] == ["One", "", "Three", "Four", "Five"]
    assert f"session-{session_id}-msg-2" in "".join(logged)
    assert "Two" not in "".join(logged)


@pytest.mark.parametrize("strategy", ["simple", "hybrid"])
async def test_the_cost_of_a_turn_does_not_grow_with_the_session(
    ours: MemoryManager, sql: asyncpg.Connection[asyncpg.Record], strategy: Strategy
) -> None:
    """In pages that the database touches, because times depend on who else uses the machine."""
    touched = {}
    for turns in (250, 5000):
        session_id = uuid4()
        await ours.append(session_id, [said(f"We decided to buy {number} cows.") for number in range(40)], creates=True)
        await talk(ours, session_id, turns)
        for _ in range(4):
            await ours.refresh_summary(session_id, strategy="hybrid")
        assert await ours.get_summary(session_id)
        touched[turns] = min([await _pages_of_a_turn(ours, sql, session_id, strategy) for _ in range(3)])
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


async def test_a_session_that_was_cleared_is_not_read_to_its_beginning(ours: MemoryManager, session_id: UUID) -> None:
    await talk(ours, session_id, 1500)
    await ours.clear_session(session_id)
    await talk(ours, session_id, 2)
    assert [line.index for line in await ours.get_recent_messages(session_id)] == [3000, 3001, 3002, 3003]


_STRATEGIES = pytest.mark.parametrize("strategy", ["simple", "summarization", "hybrid"])


@_STRATEGIES
async def test_an_empty_session_is_as_usable_as_another(ours: MemoryManager, strategy: Strategy) -> None:
    session = await ours.create_session()
    assert await ours.get_recent_messages(session.id, strategy=strategy) == []
    turn = await ours.begin_turn(session.id, said("Hello"), strategy=strategy)
    assert (turn.is_new, turn.history, turn.summary) == (False, [], None)


@_STRATEGIES
async def test_a_cleared_session_goes_on(ours: MemoryManager, session_id: UUID, strategy: Strategy) -> None:
    await talk(ours, session_id, 100)
    await ours.refresh_summary(session_id, strategy=strategy, max_tokens=400)
    await ours.clear_session(session_id)
    turn = await ours.begin_turn(session_id, said("Anew"), strategy=strategy, max_tokens=400)
    assert (turn.history, turn.summary) == ([], None)
    assert len((await ours.begin_turn(session_id, said("Again"), strategy=strategy)).history) == 1


@_STRATEGIES
@pytest.mark.parametrize("length", [5, 390, 5000])
async def test_a_newest_message_over_the_budget_does_not_end_the_conversation(
    ours: MemoryManager, session_id: UUID, strategy: Strategy, length: int
) -> None:
    await ours.append(session_id, [said("Tell me all"), answered("Ж~" * length)], creates=True)
    for budget in (1, 10, 100):
        turn = await ours.begin_turn(session_id, said("Go on"), strategy=strategy, max_tokens=budget)
        assert turn.history[0].begins_turn
        await ours.append(session_id, [called("t", "c", {}), answered("Ж~" * length)])
        await ours.refresh_summary(session_id, strategy=strategy, max_tokens=budget)


@_STRATEGIES
async def test_a_small_budget_in_the_settings_is_enough_for_a_conversation(
    settings: Settings, session_id: UUID, strategy: Strategy
) -> None:
    small = settings.model_copy(update={"memory": MemorySettings(strategy=strategy, max_history_tokens=100)})
    async with Rem.open(small) as rem:
        memory = rem.memory("alice@example.com")
        for number in range(5):
            await memory.begin_turn(session_id, said(f"Question {number}"))
            await memory.append(session_id, [answered("A long answer. " * 200)])
            await memory.refresh_summary(session_id)
        history = (await memory.begin_turn(session_id, said("And?"))).history
    assert [line.index for line in history] == [8, 9]


async def test_shortened_answers_are_given_whole_again(ours: MemoryManager, session_id: UUID) -> None:
    texts = [f"Answer {number}: " + "cheese " * 300 for number in range(6)]
    for text in texts:
        await ours.append(session_id, [said("More?"), answered(text)], creates=True)
    history = await ours.get_recent_messages(session_id)
    assert sum(line.is_truncated for line in history) == 6
    whole = await ours.expand_history(session_id, history, 100_000)
    assert [line.content for line in whole if line.role == Role.ASSISTANT] == texts
    assert not any(line.is_truncated for line in whole)
    assert [line.index for line in whole] == [line.index for line in history]
    assert sum(line.tokens for line in whole) == sum(
        count_tokens(line.content) + MESSAGE_OVERHEAD_TOKENS for line in whole
    )
    some = await ours.expand_history(session_id, history, 1500)
    assert [line.is_truncated for line in some if line.role == Role.ASSISTANT] == [*[True] * 2, *[False] * 4]
    assert sum(line.tokens for line in some) <= 1500
    assert await ours.expand_history(session_id, history, 1) == history
    assert await ours.expand_history(session_id, []) == []


async def test_an_answer_that_is_too_long_stays_short_and_older_ones_come_back(
    ours: MemoryManager, theirs: MemoryManager, session_id: UUID
) -> None:
    small, huge = "cheese " * 100, "cheese " * 5000
    await ours.append(session_id, [said("One"), answered(small), said("Two"), answered(huge)], creates=True)
    history = await ours.get_recent_messages(session_id)
    whole = await ours.expand_history(session_id, history)
    assert [(line.content == small, line.is_truncated) for line in whole if line.role == Role.ASSISTANT] == [
        (True, False),
        (False, True),
    ]
    assert await theirs.expand_history(session_id, history) == history, "it is Alice's"
    await ours.clear_session(session_id)
    assert await ours.expand_history(session_id, history) == history, "what was deleted does not come back"


async def test_a_budget_is_a_positive_number(ours: MemoryManager, session_id: UUID) -> None:
    for budget in (0, -1, 3_000_000):
        with pytest.raises(InvalidInputError, match="max_tokens"):
            await ours.begin_turn(session_id, said("x"), max_tokens=budget)
    with pytest.raises(NotFoundError):
        await ours.get_recent_messages(session_id)


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
