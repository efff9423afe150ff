"""Known people are found in texts."""

from __future__ import annotations

from rem.dreams.moments.people import KnownPeople, KnownPerson, list_speakers


def test_names_of_people_match_whole_words() -> None:
    people = KnownPeople([KnownPerson("ann-lee", ("Ann Lee", "Annie")), KnownPerson("bo", ("Bo",))])
    assert people.find_mentioned(["ANN LEE called.", "Annie again; Bo is too short, Anniething is nobody."]) == [
        "ann-lee"
    ]
    assert KnownPeople([]).find_mentioned(["Ann Lee"]) == []
    assert list_speakers([{"speaker": "Ann"}, {"speaker": "user"}, {"speaker": 7}, {}, {"speaker": "Ann"}]) == ["Ann"]
