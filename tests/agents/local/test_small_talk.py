"""`rem:local` answers small talk and questions about the session, and resolves follow-up questions."""

from __future__ import annotations

from rem.app import Rem
from rem.models import Message, Role, Session
from tests.agents.local.local_chat import CONTEXT, LAUNCH, NO_MODEL_NOTICE, WATER, ask, build_history
from tests.cases import cases


@cases(
    "question",
    ["What did I just ask you?", "what did I ask?", "Do you remember what I asked you before?", "My last question?"],
)
async def test_last_question_is_repeated_without_search(memory: Rem, question: str) -> None:
    answer = await ask(memory, question, history=await build_history(memory, WATER, LAUNCH))
    assert answer.tools == []
    assert LAUNCH in answer.text
    assert WATER not in answer.text


@cases("question", ["what did I ask first?", "What was my first question?", "What did I first ask you"])
async def test_first_question_is_repeated(memory: Rem, question: str) -> None:
    answer = await ask(memory, question, history=await build_history(memory, WATER, LAUNCH))
    assert answer.tools == []
    assert WATER in answer.text
    assert LAUNCH not in answer.text


@cases(
    "question",
    ["what did we talk about?", "What have we been talking about so far?", "What's this conversation about?"],
)
async def test_earlier_messages_are_listed(memory: Rem, question: str) -> None:
    answer = await ask(memory, question, history=await build_history(memory, WATER, LAUNCH))
    assert answer.tools == []
    assert f"1. “{WATER}”\n2. “{LAUNCH}”" in answer.text


@cases("text", ["yes", "Yes, please.", "no", "cancel", "confirm", "do it", "forget it"])
async def test_decision_without_a_request_is_not_searched(memory: Rem, text: str) -> None:
    answer = await ask(memory, text)
    assert answer.tools == []
    assert answer.text.startswith("There is nothing to confirm or to drop")


@cases("text", ["undo", "Undo that.", "please revert it"])
async def test_undo_says_what_can_be_done(memory: Rem, text: str) -> None:
    answer = await ask(memory, text)
    assert answer.tools == []
    assert answer.text.startswith("There is nothing that I can undo.")


async def test_time_without_rows_is_said_to_be_empty(memory: Rem) -> None:
    """Texts of other times are no answer."""
    answer = await ask(memory, "What did I do in March 2019?")
    assert answer.text.startswith("There is nothing in what was stored from 2019-03-01 to 2019-03-31.")
    assert "Atlas" not in answer.text


async def test_new_session_has_no_earlier_message_and_past_sessions_are_searched(memory: Rem) -> None:
    answer = await ask(memory, "What did I just ask you?")
    assert answer.tools == []
    assert answer.text.startswith("This is the first message of our conversation that I have.")
    assert "search_rem" in (await ask(memory, "What did we talk about?")).tools


@cases(
    "question",
    ["What did we talk about last week?", "What did I say about Atlas?", "What did we discuss about tomatoes?"],
)
async def test_questions_beyond_this_session_are_searched(memory: Rem, question: str) -> None:
    answer = await ask(memory, question, history=await build_history(memory, WATER))
    assert answer.calls[0][1]["query"] == question


@cases(
    "follow_up",
    ["And who leads it?", "When does it end?", "Why?", "Who leads?", "What about the budget?", "For how long?"],
)
async def test_short_follow_up_is_searched_with_the_question_it_follows(memory: Rem, follow_up: str) -> None:
    answer = await ask(memory, follow_up, history=await build_history(memory, WATER, LAUNCH, "thanks"))
    assert answer.calls[0] == ("search_rem", {"query": f"{LAUNCH} {follow_up}", "mode": "natural-language"})
    assert "`atlas-launch`" in answer.text


async def test_second_follow_up_follows_the_same_question(memory: Rem) -> None:
    answer = await ask(memory, "When does it end?", history=await build_history(memory, LAUNCH, "And who leads it?"))
    assert answer.calls[0][1]["query"] == f"{LAUNCH} When does it end?"


async def test_follow_up_of_a_query_searches_without_its_verb(memory: Rem) -> None:
    answer = await ask(memory, "When does it end?", history=await build_history(memory, 'LOOKUP "atlas-launch"'))
    assert answer.calls[0][1] == {"query": '"atlas-launch" When does it end?', "mode": "natural-language"}


async def test_followed_question_is_not_quoted(memory: Rem) -> None:
    store = memory.store(CONTEXT.scope)
    session = await store.upsert(Session(name="talk"))
    for index, text in enumerate([LAUNCH, "And who leads it?", "Bob leads the launch of Atlas."]):
        await store.upsert(Message(session_id=session.id, message_index=index, role=Role.USER, content=text))
    text = (await ask(memory, "And who leads it?", history=await build_history(memory, LAUNCH))).text
    assert "Bob leads the launch of Atlas." in text
    assert LAUNCH not in text


@cases(
    "question",
    ["Who is Sarah Chen?", "What happened this week?", "Is the IT budget approved?", "SEARCH it LIMIT 1", "Garden"],
)
async def test_independent_question_is_searched_alone(memory: Rem, question: str) -> None:
    answer = await ask(memory, question, history=await build_history(memory, LAUNCH))
    assert answer.calls[0][1]["query"] == question


async def test_question_that_names_its_pronoun_is_no_follow_up(memory: Rem) -> None:
    for question in ("where was it again the parking spot", "What was it, the boiler code?"):
        answer = await ask(memory, question, history=await build_history(memory, LAUNCH))
        assert answer.calls[0] == ("search_rem", {"query": question, "mode": "natural-language"})


async def test_follow_up_without_earlier_question_is_searched_alone(memory: Rem) -> None:
    assert (await ask(memory, "When does it end?")).calls[0][1]["query"] == "When does it end?"


@cases(
    "text",
    [
        "Please remember that my favourite colour is teal.",
        "remember: my favourite colour is teal.",
        "Don't forget that my favourite colour is teal.",
        "Could you please remember that my favourite colour is teal.",
        "Note that my favourite colour is teal.",
    ],
)
async def test_request_to_remember_is_confirmed_without_search(memory: Rem, text: str) -> None:
    answer = await ask(memory, text)
    assert answer.tools == []
    assert answer.text.startswith("Noted: “my favourite colour is teal.”\n\n")
    assert NO_MODEL_NOTICE in answer.text


@cases("text", ["Do you remember Atlas?", "Remember that launch in June?", "note taking with Atlas"])
async def test_question_that_starts_like_a_request_to_remember_is_searched(memory: Rem, text: str) -> None:
    assert "search_rem" in (await ask(memory, text)).tools


@cases("text", ["Hi! I'm Sam. I live in Svendborg.", "Yusuf is allergic to peanuts.", "Atlas moved to July"])
async def test_statement_is_noted_without_search(memory: Rem, text: str) -> None:
    answer = await ask(memory, text)
    assert answer.tools == []
    assert answer.text.startswith("Noted: “")
    assert text.rpartition("! ")[2] in answer.text


async def test_question_after_a_statement_is_searched_alone(memory: Rem) -> None:
    answer = await ask(memory, "Yusuf is allergic to peanuts. Why did the launch of Atlas slip?")
    assert answer.calls[0][1]["query"] == LAUNCH
    assert answer.text.startswith("Noted: “Yusuf is allergic to peanuts.”\n\nHere is what memory holds")


@cases("text", ["Atlas launch", "tomatoes", "sarah-chen"])
async def test_topic_is_searched(memory: Rem, text: str) -> None:
    assert (await ask(memory, text)).calls[0] == ("search_rem", {"query": text, "mode": "natural-language"})
