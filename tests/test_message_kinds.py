"""Messages are classified by rules, and only their statements are kept for dreams."""

from __future__ import annotations

import time

import pytest

from rem.message_kinds import (
    MAX_CLASSIFIED_CHARS,
    classify_message,
    continues_earlier,
    find_statement_spans,
    get_kind,
)
from rem.models import MessageKind, Role

_EXAMPLES = {
    MessageKind.STATEMENT: [
        "did the dishes today",
        "Do exercises twice a day.",
        "can only come on friday",
        "My code word for the boat is heliotrope-91.",
        "Hi! I'm Sam. I live in Svendborg.",
        "Yusuf is allergic to peanuts.",
        "We moved to Aarhus last week",
        "I moved to Aarhus last week, can you update that?",
        "Remember that my locker is 214",
        "Can you remember that my locker is 214?",
        "Don't forget my dentist appointment on Friday",
        "Actually it's on Thursday",
        "On Tuesday",
        "Aarhus",
        "Read Dune last week.",
        "Show starts at 8",
        "List price is 20 euros",
        "Had the flu last week",
        "Will the lawyer called back",
        "When I was young I lived in Berlin.",
        "What a day! The crane broke.",
        "Correction: the meeting is at 4pm",
        "Guess what? I got a new job at Maersk!",
        "I'm planning a trip to Japan in May, what should I see?",
        "Which reminds me, the boiler is leaking",
        "Thanks! Marta's number is 555-1234",
        "No, it's Lena who leads the project.",
        "Note to self: buy stamps",
        "Ich wohne in Berlin.",
        "Merk dir, dass mein Spind 214 ist",
        "the wifi password at the cabin is bluefin",
        "Dentist moved to Wed 3pm",
        "my sister ewa is coming on saturday",
        "I love hiking",
        "We decided to use NATS instead of Kafka",
        "Find attached the invoice 4411",
        "Check from Anna arrived",
        "I forgot my umbrella at Tom's place",
        "Need to call the plumber tomorrow",
        "Tell Marta the boat is fixed",
        "Had lunch with Priya today",
        "Ok so the new plan is to launch on May 3",
        "fyi the standup is at 9:30 now",
        "Save the date: wedding on 12 June",
        "To be clear, Jonas is not coming.",
        "Reply from Anna came today",
    ],
    MessageKind.QUESTION: [
        "whats my new phone number",
        "wheres my bike",
        "is magnesium good for cramps",
        "do kilts have pockets",
        "What is my code word for the boat?",
        "what is my code word",
        "Where do I live?",
        "who is marta",
        "Who works with Marta",
        "do you know my sister's name",
        "I wonder what Tom said",
        "Remind me what my locker number is",
        "I live in Aarhus, right?",
        "I like tea, don't I?",
        "how many notes do i have",
        "And the dentist?",
        "when did we move",
        "In which city do I live",
        "If I move to Berlin, what happens?",
        "Wo wohne ich",
        "Wie heißt meine Schwester?",
        "can you tell me what Yusuf is allergic to?",
        "What time is the standup",
        "so what was the ticket number again",
        "Did I mention my flight",
        "any news from marta",
        "Could you remind me who leads Aurora?",
        "where's my passport",
        "whats my passport number",
        "wheres the key",
        "whos the plumber",
        "I can't remember what my pin is",
        "What's the latest on the crane",
        "Do you remember my code word?",
        "Which hotel did we book",
        "hey, what did Marta say about the boat",
    ],
    MessageKind.COMMAND: [
        "Remind me to water the ficus on Fridays, please.",
        "Please don't let me forget the keys",
        "Make a list of the open points please.",
        "list notes tagged daily",
        "Forget my code word.",
        "Show me my notes",
        "tell me about Marta",
        "List all people",
        'LOOKUP "sarah-chen"',
        "Summarize my week",
        "Translate this into German: I live in Rome",
        "delete everything about Tom",
        "please find my notes about the boat",
        "Write me a poem",
        "/help",
        "Zeig mir meine Notizen",
        "Help me plan the week",
        "my latest notes",
        "Notes from March 2026",
        "meine letzten Notizen",
    ],
    MessageKind.SMALL_TALK: [
        "cheers, speak later",
        "thats it for the week, bye",
        "ok brb",
        "only 1 and 3",
        "brilliant",
        "Hi",
        "hello there",
        "Thanks!",
        "thank you so much",
        "ok",
        "Great, thanks",
        "Good morning!",
        "How are you?",
        "That's great!",
        "bye",
        "I see.",
        "Danke",
        "lol",
        "nice to meet you",
        "yes",
        "No thanks",
    ],
    MessageKind.QUOTATION: [
        "> hello world\n> I live in Rome",
        '"To be or not to be, that is the question." - Shakespeare',
        '"I live in Rome"',
    ],
}


def _keep_statements(text: str) -> str:
    """Return what dreams read of a message; "" if it is not a statement."""
    if classify_message(text) is not MessageKind.STATEMENT:
        return ""
    return "\n".join(text[start:end].strip() for start, end in find_statement_spans(text))


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in _EXAMPLES.items() for text in texts])
def test_kind_of_a_message(kind: MessageKind, text: str) -> None:
    assert classify_message(text) is kind


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Hi! I'm Sam. I live in Svendborg. What's the weather?", "I'm Sam.\nI live in Svendborg."),
        ("I moved to Aarhus last week, can you update that?", "I moved to Aarhus last week"),
        ("Remember that my locker is 214. Thanks!", "my locker is 214."),
        ("Can you remember that my locker is 214?", "my locker is 214?"),
        ("Guess what? I got a new job at Maersk!", "I got a new job at Maersk!"),
        ("I like tea, don't I?", ""),
        ("What is Yusuf allergic to?", ""),
        ("", ""),
    ],
)
def test_only_statements_are_kept(text: str, kept: str) -> None:
    assert _keep_statements(text) == kept


def test_spans_are_offsets_of_the_text() -> None:
    text = "Thanks! It’s at 4pm. Ok?  The “Blue hour” tour too."
    assert [text[start:end] for start, end in find_statement_spans(text)] == [
        "It’s at 4pm.",
        "The “Blue hour” tour too.",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "kp 4502 - what was that again",
        "the plumber, what's his number",
        "boiler code - remind me",
        "where was it again the parking spot",
        "invoice 2231 from Bauhaus - what was that for again",
        "the new kettle, where did we buy it",
        "the guy from the garage - name again",
        "my sister's flat, which floor",
        "gate code, i forgot",
    ],
)
def test_thing_with_a_question_after_it_is_a_question(text: str) -> None:
    assert classify_message(text) is MessageKind.QUESTION


@pytest.mark.parametrize(
    "text",
    [
        "I asked what was wrong",
        "boiler code - 4471",
        "the key, which Tom had, is back",
        "It's in the cellar, where the bikes are",
        "Lena, who works at the bakery, moved",
        "dinner with Tom - what a night",
        "We found out why the heating failed - it was the valve",
    ],
)
def test_statement_with_a_question_word_stays_one(text: str) -> None:
    assert classify_message(text) is MessageKind.STATEMENT


def test_only_messages_of_users_are_classified() -> None:
    assert get_kind(Role.USER, "Where is Tom?") is MessageKind.QUESTION
    assert get_kind(Role.ASSISTANT, "Where is Tom?") is MessageKind.ANSWER
    assert get_kind(Role.TOOL, "Where is Tom?") is None


def test_long_text_is_a_statement_and_is_kept_to_its_end() -> None:
    text = "What is this? " * MAX_CLASSIFIED_CHARS + "The end."
    assert classify_message(text) is MessageKind.STATEMENT
    assert _keep_statements(text).endswith("The end.")


@pytest.mark.parametrize(
    "text",
    [
        "a, " * 200_000,
        "> " * 100_000,
        '"x" ' * 50_000,
        "I, " * 6_000 + "?",
        "\n" * 50_000 + "hello",
        "> a\n" + "\n" * 50 + "I agree",
    ],
)
def test_odd_texts_are_classified_in_linear_time(text: str) -> None:
    # A pattern with quadratic time would take minutes.
    assert classify_message(text) in MessageKind
    assert len(_keep_statements(text)) <= len(text)


@pytest.mark.parametrize(
    "text", ["?" * 19_999 + "x", "Is it? " + "!" * 19_000 + "x", "? " * 9_999 + "x"], ids=lambda text: text[:6]
)
def test_hostile_text_is_classified_in_linear_time(text: str) -> None:
    started = time.process_time()
    classify_message(text)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "text",
    [
        "which bus goes to the pool",
        "was it the 14th",
        "is lena coming",
        "has the parcel come",
        "where we meeting tonight",
        "whod i lend the drill to",
        "what must my son not eat",
        "which jab is otto still missing",
        "how hot must the oven be",
        "did jo pay the deposit",
        "should a rabbit be sober before an operation",
    ],
)
def test_short_question_without_a_question_mark_is_a_question(text: str) -> None:
    assert classify_message(text) is MessageKind.QUESTION


@pytest.mark.parametrize(
    ("text", "continues"),
    [
        ("He works as a cook.", True),
        ("His owner is Raquel.", True),
        ("I have promised him a trip.", True),
        ("lent him 30 til payday", True),
        ("and she wants it back", True),
        ("starts in october, in kiel", True),
        ("asked if i wanna come as sous", True),
        ("Actually it's on Thursday", True),
        ("My sister told me that she is pregnant.", False),
        ("Vasco phoned. He is not coming.", False),
        ("This morning I met Tom.", False),
        ("I saw it on the x-ray.", False),
        ("We moved to Aarhus last week.", False),
        ("left my rain jacket in the staff room", False),
    ],
)
def test_message_without_a_subject_of_its_own_continues_the_one_before(text: str, continues: bool) -> None:
    assert continues_earlier(text) is continues


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("I need the serial number of the boiler", MessageKind.QUESTION),
        ("I need the serial number before Friday", MessageKind.STATEMENT),
        ("The pump is out, what now?", MessageKind.QUESTION),
        ("wher is my key", MessageKind.QUESTION),
        ("waht is the serial of my laptop", MessageKind.QUESTION),
        ("whrre did I hide the present", MessageKind.QUESTION),
        ("whst must mum not drink", MessageKind.QUESTION),
        ("Wheer is the small sail", MessageKind.QUESTION),
        ("whcih paint goes on the hull", MessageKind.QUESTION),
        ("hwo much did the dishwasher cost", MessageKind.QUESTION),
        ("hat did the lab find out", MessageKind.QUESTION),
        ("wo is belmiro", MessageKind.QUESTION),
        ("wot time does the bus go", MessageKind.QUESTION),
        ("is Lars married", MessageKind.QUESTION),
        ("Does Emre play the cello", MessageKind.QUESTION),
        ("did you know where my keys are", MessageKind.QUESTION),
        ("did you know Emre plays the cello", MessageKind.STATEMENT),
        ("do you know that Lars got married?", MessageKind.STATEMENT),
        ("When I was ten I broke my arm.", MessageKind.STATEMENT),
        ("Who would have thought, Ragna is pregnant!", MessageKind.STATEMENT),
        ("correct my shoe size", MessageKind.COMMAND),
        ("Chen is coming on Friday", MessageKind.STATEMENT),
        ("Huw is the new conductor", MessageKind.STATEMENT),
        ("hat and gloves are in the hall cupboard", MessageKind.STATEMENT),
        ("here is the new code of the gate: 4411", MessageKind.STATEMENT),
        ("Now is the time the shop closes.", MessageKind.STATEMENT),
        ("i forgot the wifi password", MessageKind.QUESTION),
        ("i forgot the umbrella in the code review", MessageKind.STATEMENT),
        ("The pump is out, can you find its manual?", MessageKind.STATEMENT),
    ],
)
def test_situation_and_need_are_told_from_news(text: str, kind: MessageKind) -> None:
    assert classify_message(text) is kind


@pytest.mark.parametrize(
    "text",
    [
        "my parents live in Trier",
        "the twins sleep in the attic",
        "Lena walks to school",
        "Rex barks.",
        "wifi: pear42",
        "passport -> safe",
        "我的猫叫小黑。",
        "Who knew that Eva moved to Rome",
    ],
)
def test_short_sentence_without_a_full_stop_is_a_statement(text: str) -> None:
    assert classify_message(text) is MessageKind.STATEMENT


def test_very_long_question_is_no_statement() -> None:
    words = " ".join(f"w{number}" for number in range(MAX_CLASSIFIED_CHARS // 4))
    assert classify_message(f"what is {words}") is MessageKind.QUESTION
    assert classify_message(f"forget my bike and {words}") is MessageKind.COMMAND
    assert classify_message(f"The boat is in Kiel. {words}") is MessageKind.STATEMENT
    assert classify_message(f"What is this? {words}") is MessageKind.STATEMENT
