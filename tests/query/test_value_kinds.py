"""The kind of value that a question asks for, and the kinds that a text has."""

from __future__ import annotations

import pytest

from rem.query.question_words import QuestionWords, stem_word
from rem.query.value_kinds import find_value_kinds, find_wanted_kinds


@pytest.mark.parametrize(
    ("question", "kinds"),
    [
        ("When do we meet?", {"time", "day"}),
        ("Till when are they staying?", {"time", "day"}),
        ("On which day is the exam?", {"time", "day"}),
        ("Where is the boat?", {"place"}),
        ("In which town do we live?", {"place"}),
        ("How old is Mila?", {"number"}),
        ("What does the lift cost?", {"number"}),
        ("What is the gate code?", {"code"}),
        ("What's the part number of the pump?", {"code"}),
        ("What number is my locker?", {"code", "number"}),
        ("What is the registration of my car?", {"code"}),
        ("Why did we leave?", {"reason"}),
        ("Who is Marta?", {"name"}),
        ("Where does the train leave from?", {"place", "origin"}),
        ("Which flight do I take?", {"code", "number"}),
        ("What do we clean the floor with?", set()),
        ("Wo ist das Boot?", set()),
    ],
)
def test_question_asks_for_a_kind_of_value(question: str, kinds: set[str]) -> None:
    assert find_wanted_kinds(question) == kinds


@pytest.mark.parametrize(
    ("text", "kind", "is_found"),
    [
        ("We meet on Friday.", "day", True),
        ("They start in the second week of February.", "day", True),
        ("He comes at six.", "time", True),
        ("The code is 4471.", "code", True),
        ("The code word is kingfisher-22.", "code", True),
        ("Mila's eight.", "number", True),
        ("It is in the courtyard.", "place", True),
        ("He wanted too much money.", "reason", True),
        ("We saw Marta there.", "name", True),
        ("exam on sat 9am", "day", True),
        ("Nan is back home.", "place", True),
        ("The lump weighed 640 grams.", "number", True),
        ("His plate is 91-QX-33.", "number", False),
        ("They offer 41.20 per set.", "time", False),
        ("She gets melatonin in the evening.", "place", False),
        ("The tent is blue.", "day", False),
        ("The tent is blue.", "number", False),
        ("The tent is blue.", "code", False),
        ("The tent is blue.", "name", False),
        ("It is on Thursday.", "name", False),
        ("Dr. Okoro moved it.", "name", True),
        ("It leaves from Hamburg.", "origin", True),
        ("It is so from Monday on.", "origin", False),
    ],
)
def test_text_has_kinds_of_values(text: str, kind: str, is_found: bool) -> None:
    assert (kind in find_value_kinds(text)) is is_found


@pytest.mark.parametrize(
    "forms", ["bike bikes", "move moves moved moving", "party parties", "class classes", "bus buses", "box boxes"]
)
def test_forms_of_a_word_have_the_same_stem(forms: str) -> None:
    assert len({stem_word(word) for word in forms.split()}) == 1


def test_words_of_a_question_are_found_in_other_forms_and_as_synonyms() -> None:
    asked = QuestionWords.of("When does the choir rehearse in the sofa shop?")
    part = asked.find_part("It rained. Choir rehearsals are on Thursdays. They sit on a couch.")
    assert part.covered == {"choir", "rehears", "sofa"}
    assert "day" in part.kinds
    assert asked.find_part("").covered == set()


def test_wifi_is_the_same_word_with_and_without_a_hyphen() -> None:
    assert QuestionWords.of("whats the wifi password").find_part("The Wi-Fi has a new password.").covered == {
        "wifi",
        "password",
    }
