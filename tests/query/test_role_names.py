"""The names of those whom a question calls by a role."""

from __future__ import annotations

import pytest

from rem.query.role_names import find_role_names


@pytest.mark.parametrize(
    ("question", "text", "names"),
    [
        ("Why is my brother busy?", "# Vasco\n\nMy brother. Lives in Ghent.", {"brother": {"vasco"}}),
        ("Who invited my brother?", "I met my brother Dele at the station.", {"brother": {"dele"}}),
        ("What does the conductor want?", "The conductor is Ilse Baumgart.", {"conductor": {"ilse"}}),
        ("What did the vet say?", "We saw the vet, Dr. Ivo Lang, about Rex.", {"vet": {"ivo"}}),
        ("Is the Great Dane better?", "A Great Dane named Ulisses came in.", {"dane": {"ulisses"}}),
        ("what does the chef want", "kitchen at the heron, 38h. chef is marisol", {"chef": {"marisol"}}),
        ("What does the receptionist know?", "I need a receptionist, Marta suggests her niece.", {}),
        ("What do we charge for a cat?", "# Zorba\nCat with a kidney disease.", {}),
        ("What does Ilse, the conductor, want?", "The conductor is Ilse Baumgart.", {}),
        ("How old is the boat?", "The boat is blue.", {}),
    ],
)
def test_text_tells_who_has_the_role_of_a_question(question: str, text: str, names: dict[str, set[str]]) -> None:
    assert find_role_names(question, [text]) == names


def test_role_of_many_people_names_nobody() -> None:
    texts = ["Our tutor is Ada.", "Our tutor is Ben.", "Our tutor is Cleo."]
    assert find_role_names("What does the tutor want?", texts) == {}
