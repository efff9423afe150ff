"""What of a text tells what it is about: words, topics, sentences, feelings; and where one episode ends."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from rem.dreaming.moments.episodes import MAX_EPISODE_MESSAGES, Episode, split_into_episodes
from rem.dreaming.moments.people import KnownPeople, KnownPerson, list_speakers
from rem.dreaming.moments.summary import MAX_SUMMARY_CHARS, Utterance, summarize
from rem.dreaming.moments.tags import extract_emotions, extract_topics, to_tag
from rem.dreaming.run import SourceMessage
from rem.dreaming.text.words import compute_rarity, extract_content_words
from tests.dreaming.sample_sessions import MARCH

_PAUSE = timedelta(minutes=60)


def _said(*texts: str, minutes: float = 1) -> list[SourceMessage]:
    return [
        SourceMessage(uuid4(), f"msg-{place}", place, "user", text, {}, MARCH + timedelta(minutes=minutes) * place)
        for place, text in enumerate(texts)
    ]


def test_content_words_are_those_that_say_something() -> None:
    assert list(extract_content_words("Hi! Thanks, I really think that the Postgres migration was great.")) == [
        "postgres",
        "migration",
    ]
    assert list(extract_content_words("来月、東京の会議で")) == ["来月", "東京", "会議"]
    assert list(extract_content_words("")) == list(extract_content_words("... 42 !!")) == []


def test_rare_words_are_told_from_common_ones_without_statistics() -> None:
    assert compute_rarity("the") == 0
    assert (
        compute_rarity("the")
        < compute_rarity("table")
        < compute_rarity("greenhouse")
        <= compute_rarity("xylographically")
        == 1
    )


def test_topics_are_in_kebab_case_phrases_first_and_plurals_once() -> None:
    text = "The Postgres migration is hard. Our Postgres migration needs the ledgers. The ledger is big, ledgers are."
    topics = extract_topics([(text, 1.0)])
    assert topics[0] == "postgres-migration"
    assert "ledger" in topics
    assert "ledgers" not in topics
    assert len(topics) <= 5
    assert extract_topics([("", 1.0)]) == []
    assert to_tag("  C++ / Rust & Co. ") == "c-rust-co"


def test_a_summary_prefers_what_people_state_with_names_and_figures() -> None:
    summary = summarize(
        [
            Utterance("Hello there! How are you?"),
            Utterance(
                "Sure! I'd be happy to help. Databases are systems that store data in tables.", is_assistant=True
            ),
            Utterance("What is the best database?"),
            Utterance("We decided to take Postgres 17 for the ledger in Graz. Thanks!"),
            Utterance("```\nDROP TABLE ledger;\n```"),
        ]
    )
    assert summary.startswith("We decided to take Postgres 17 for the ledger in Graz.") or (
        "We decided to take Postgres 17 for the ledger in Graz." in summary
    )
    assert "happy to help" not in summary
    assert "DROP TABLE" not in summary


@pytest.mark.parametrize("text", ["", " \n ", "!!!", "x" * 100_000, "ü\u200b" * 50, "word " * 50_000, "[photo]"])
def test_a_summary_of_anything_is_short_and_never_fails(text: str) -> None:
    assert len(summarize([Utterance(text)])) <= MAX_SUMMARY_CHARS + 10


def test_feelings_are_stated_not_negated_and_not_asked_for() -> None:
    assert extract_emotions(["I am so worried and a bit sad. Very worried!"]) == ["worry", "sadness"]
    assert extract_emotions(["I'm not worried at all.", "Are you sad?", "It was sad-looking? no"]) == []
    assert extract_emotions(["とても不安です"]) == ["worry"]


def test_people_are_known_by_their_names_as_whole_words() -> None:
    people = KnownPeople([KnownPerson("ann-lee", ("Ann Lee", "Annie")), KnownPerson("bo", ("Bo",))])
    assert people.find_mentioned(["ANN LEE called.", "Annie again; Bo is too short, Anniething is nobody."]) == [
        "ann-lee"
    ]
    assert KnownPeople([]).find_mentioned(["Ann Lee"]) == []
    assert list_speakers([{"speaker": "Ann"}, {"speaker": "user"}, {"speaker": 7}, {}, {"speaker": "Ann"}]) == ["Ann"]


def test_an_episode_ends_at_a_pause_and_before_it_grows_too_long() -> None:
    said = _said(*["The kiln fires the clay bowls."] * (MAX_EPISODE_MESSAGES + 5))
    assert [len(episode.messages) for episode in split_into_episodes(said, None, _PAUSE)] == [MAX_EPISODE_MESSAGES, 5]
    assert [
        len(episode.messages) for episode in split_into_episodes(_said("a", "b", "c", minutes=61), None, _PAUSE)
    ] == [
        1,
        1,
        1,
    ]
    assert [len(episode.messages) for episode in split_into_episodes(_said("a", "b", minutes=60), None, _PAUSE)] == [2]
    assert split_into_episodes([], None, _PAUSE) == []


def test_cut_again_from_any_beginning_the_episodes_are_the_same() -> None:
    clay = "The pottery kiln fires clay bowls, cups, vases, saucers, jugs, tiles, glaze and terracotta lanterns."
    boat = (
        "The sailmaker in Cowes stitches a Dacron mainsail, spinnaker, jib, battens, halyard, shackles, fairleads, "
        "winches and reefing lines."
    )
    said = _said(*([clay] * 5 + [boat] * 5) * 3)
    episodes = split_into_episodes(said, None, _PAUSE)
    assert [episode.first_index for episode in episodes] == [0, 5, 10, 15, 20, 25]
    for number, episode in enumerate(episodes):
        assert split_into_episodes(said[episode.first_index :], None, _PAUSE) == episodes[number:]


def test_small_talk_alone_says_nothing() -> None:
    assert not Episode(tuple(_said("hi", "thanks!", "good night"))).is_meaningful
    assert Episode(tuple(_said("hi", "I moved to Berlin."))).is_meaningful
