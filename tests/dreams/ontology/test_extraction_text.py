"""Documents are split for the model, and extracted data is formatted as text."""

from __future__ import annotations

from rem.dreams.ontology.extraction import format_as_text, split_into_portions


def test_portions_together_are_the_text() -> None:
    text = "".join(f"Paragraph {number}, {'word ' * 40}\n\n" for number in range(400))
    portions = split_into_portions(text)
    assert len(portions) > 3
    assert "".join(portions) == text
    assert all(portion.endswith("\n\n") for portion in portions)
    assert split_into_portions("") == []
    assert "".join(split_into_portions("x" * 50_001)) == "x" * 50_001


def test_data_is_formatted_as_text() -> None:
    data = {"full_name": "Zoë", "skills": ["Go", "SQL"], "empty": [], "is_new": True}
    jobs = [{"title": "Engineer", "years": 3}, {"title": "Lead"}]
    text = format_as_text("cv", {**data, "jobs": jobs, "address": {"city": "Ἀθῆναι"}})
    assert text == (
        "cv\nFull name: Zoë\nSkills: Go, SQL\nIs new: yes\nJobs:\n- Title: Engineer\n  Years: 3\n- Title: Lead\n"
        "Address:\n  City: Ἀθῆναι"
    )
