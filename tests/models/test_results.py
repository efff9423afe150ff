"""Hits, results and answers: lazy entities, times and JSON."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from rem.errors import CorruptRowError
from rem.models import Entity, File, Message, Session, User
from rem.models.results import (
    Answer,
    EdgeGroup,
    FuzzyMatch,
    Hit,
    NearMessage,
    Note,
    Passage,
    Ref,
    Result,
    Span,
    Walk,
    find_time,
)

CREATED_AT = "2026-11-14T10:20:30+00:00"
SESSION = "0d5f0f63-2b6d-4d0e-9f5a-5b3f6f3f7c11"


def make_hit(table: str = "messages", **fields: Any) -> Hit:
    """Return a hit of a row with the given fields."""
    record = {"id": SESSION, "created_at": CREATED_AT, "content": "Blue is best."} | fields
    return Hit(table, "k", record)


def make_message() -> Hit:
    """Return a hit of a complete message."""
    message = Message(session_id=SESSION, message_index=0, role="user", content="Blue is best.")
    return Hit("messages", "k", message.model_dump(mode="json"))


class TestText:
    def test_entity_returns_its_main_text(self) -> None:
        assert make_message().entity.text == "Blue is best."
        assert User(name="Ada", email="ada@example.com", summary="a pilot", role="captain").text == "a pilot"
        assert Session(description="about blue").text == "about blue"
        assert Session().text == ""
        assert File(name="a.txt", uri="file:///a.txt").text == ""

    def test_custom_type_may_have_a_field_text(self) -> None:
        class Clipping(Entity, table="clippings", search=("headline", "text")):
            name: str
            headline: str = ""
            text: str = ""

        clipping = Clipping(name="c", headline="Blue", text="Blue is best.")
        assert (clipping.text, Clipping.find_text({"text": "x", "headline": "y"})) == ("Blue is best.", "x")
        clipping.text = "Red is best."
        assert clipping.text == "Red is best."

    def test_custom_type_without_usual_names_returns_its_first_searched_field(self) -> None:
        class Recipe(Entity, table="recipes", summary="title", search=("steps",)):
            name: str
            title: str = ""
            steps: str = ""

        assert Recipe(name="r", title="Soup", steps="Boil.").text == "Boil."

    def test_hit_returns_the_text_without_building_the_entity(self) -> None:
        assert make_hit(role="no role").text == "Blue is best."

    def test_looked_up_file_has_its_content(self) -> None:
        assert make_hit("files", content="Dear Ada").text == "Dear Ada"

    def test_passage_is_shown_instead_of_the_whole_text(self) -> None:
        hit = replace(make_hit(), passage=Passage("messages", "k", "content", 0, 4, "Blue"))
        assert (hit.shown_text, make_hit().shown_text) == ("Blue", "Blue is best.")


class TestEntity:
    def test_entity_is_built_once(self) -> None:
        hit = make_message()
        assert isinstance(hit.entity, Message)
        assert hit.entity is hit.entity

    def test_row_that_does_not_fit_is_reported_on_use(self) -> None:
        hit = make_hit(role="nobody")
        with pytest.raises(CorruptRowError):
            _ = hit.entity


class TestTime:
    @pytest.mark.parametrize(
        ("table", "fields", "expected"),
        [
            ("messages", {}, datetime(2026, 11, 14, 10, 20, 30, tzinfo=UTC)),
            ("moments", {"starts_timestamp": "2026-01-02T03:04:05+00:00"}, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
            ("resources", {"timestamp": "2026-01-02T00:00:00+00:00"}, datetime(2026, 1, 2, tzinfo=UTC)),
            ("files", {"metadata": {"written_at": "2026-01-02T00:00:00+01:00"}}, datetime(2026, 1, 1, 23, tzinfo=UTC)),
            ("files", {"metadata": {"written_at": "soon"}}, datetime(2026, 11, 14, 10, 20, 30, tzinfo=UTC)),
            ("files", {"metadata": {"written_at": "2026-01-02"}}, datetime(2026, 11, 14, 10, 20, 30, tzinfo=UTC)),
            ("users", {}, None),
        ],
    )
    def test_time_depends_on_the_table(self, table: str, fields: dict[str, Any], expected: datetime | None) -> None:
        assert make_hit(table, **fields).happened_at == expected

    def test_time_is_in_the_zone_of_the_caller(self) -> None:
        hit = replace(make_hit(), zone=timezone(timedelta(hours=2)))
        assert hit.as_json()["happened_at"] == "2026-11-14T12:20:30+02:00"

    def test_row_without_times_has_none(self) -> None:
        assert find_time("messages", {}) is None


class TestAssistant:
    def hits(self) -> list[Hit]:
        """Return two hits of an assistant among those of a user."""
        said = [replace(make_hit(), said_by="assistant", score=float(number)) for number in (9, 8, 7, 6)]
        return [said[0], make_hit(), said[1], replace(make_hit("sessions"), said_by="assistant"), *said[2:]]

    def test_its_messages_come_last(self) -> None:
        ordered = Result("SEARCH", self.hits()).put_assistant_last().hits
        assert [hit.is_from_assistant for hit in ordered] == [False, False, True, True, True, True]

    def test_some_of_its_messages_keep_their_places(self) -> None:
        kept = Result("SEARCH", self.hits()).put_assistant_last().keep_best(3).hits
        assert [hit.is_from_assistant for hit in kept] == [False, False, True]

    def test_question_about_it_keeps_the_order(self) -> None:
        result = Result("SEARCH", self.hits(), asks_assistant=True)
        assert result.put_assistant_last().keep_best(1).hits == self.hits()[:1]


class TestJson:
    def test_plain_hit_has_only_what_its_verb_tells(self) -> None:
        assert make_hit().as_json().keys() == {"table", "key", "happened_at", "record"}

    def test_hit_of_a_search(self) -> None:
        hit = replace(
            make_hit(),
            score=0.0,
            similarity=0.5,
            word_weight=0.25,
            passage=Passage("messages", "k", "content", 0, 4, "Blue"),
            said_by="assistant",
            around=(NearMessage("user", "Which colour?", -1), NearMessage("user", "Sure?", 1)),
            replaced_by=Ref("messages", "newer", datetime(2026, 11, 15, tzinfo=UTC)),
        )
        values = hit.as_json()
        assert (values["score"], values["similarity"], values["weight"]) == (0.0, 0.5, 0.25)
        assert values["passage"] == {
            "table": "messages",
            "key": "k",
            "field": "content",
            "start": 0,
            "end": 4,
            "text": "Blue",
        }
        assert (values["said_before"], values["said_after"]) == (["Which colour?"], ["Sure?"])
        assert (values["superseded_by"], values["superseded_at"], values["said_by"]) == (
            "newer",
            "2026-11-15",
            "assistant",
        )

    def test_parts_of_other_verbs_are_fields_of_the_row(self) -> None:
        fuzzy = replace(make_hit(), fuzzy=FuzzyMatch("key", "sarah")).as_json()
        walk = replace(make_hit(), walk=Walk(1, ["a", "k"], "knows", 1.0, "out")).as_json()
        assert (fuzzy["matched"], fuzzy["matched_key"]) == ("key", "sarah")
        assert (walk["depth"], walk["path"], walk["rel_type"]) == (1, ["a", "k"], "knows")

    def test_result_lists_all_kinds_of_rows(self) -> None:
        result = Result(
            "TRAVERSE", [make_hit()], [{"n": 1}], edges=[EdgeGroup("users", "ada", "knows", "out", 1, ["bo"])]
        )
        values = result.as_json()
        assert (values["query_type"], values["count"], len(values["results"])) == ("TRAVERSE", 3, 3)
        assert values["results"][1]["destinations"] == ["bo"]
        assert "notes" not in values
        assert "steps" not in values

    def test_notes_have_a_code(self) -> None:
        result = Result("SEARCH", notes=(Note("weak", "Nothing is clear."),))
        assert result.as_json(explain=True)["notes"] == [{"code": "weak", "text": "Nothing is clear."}]
        assert result.has_note("weak")
        assert not result.has_note("waiting")

    def test_answer(self) -> None:
        answer = Answer("answered", "Blue.", Span(0, 0, 4, "Blue"), 0.75, [make_hit()])
        values = answer.as_json()
        assert values["quote"] == {"hit": 0, "start": 0, "end": 4, "text": "Blue"}
        assert (values["status"], len(values["hits"]), values["notes"]) == ("answered", 1, [])
        assert Answer("nothing", "").as_json()["quote"] is None
