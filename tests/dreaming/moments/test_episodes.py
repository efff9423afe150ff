"""Sessions are split into episodes at pauses and topic changes."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from rem.dreaming.moments.episodes import MAX_EPISODE_MESSAGES, Episode, split_into_episodes
from rem.dreaming.run import SourceMessage
from tests.dreaming.sample_sessions import MARCH

_PAUSE = timedelta(minutes=60)


def _make_messages(*texts: str, minutes: float = 1) -> list[SourceMessage]:
    return [
        SourceMessage(uuid4(), f"msg-{index}", index, text, {}, MARCH + timedelta(minutes=minutes) * index)
        for index, text in enumerate(texts)
    ]


def test_episode_ends_at_pause_and_at_maximum_length() -> None:
    messages = _make_messages(*["The kiln fires the clay bowls."] * (MAX_EPISODE_MESSAGES + 5))
    assert [len(episode.messages) for episode in split_into_episodes(messages, None, _PAUSE)] == [
        MAX_EPISODE_MESSAGES,
        5,
    ]
    assert [
        len(episode.messages)
        for episode in split_into_episodes(_make_messages("a", "b", "c", minutes=61), None, _PAUSE)
    ] == [
        1,
        1,
        1,
    ]
    assert [
        len(episode.messages) for episode in split_into_episodes(_make_messages("a", "b", minutes=60), None, _PAUSE)
    ] == [2]
    assert split_into_episodes([], None, _PAUSE) == []


def test_splitting_from_any_episode_start_gives_the_same_episodes() -> None:
    clay = "The pottery kiln fires clay bowls, cups, vases, saucers, jugs, tiles, glaze and terracotta lanterns."
    boat = (
        "The sailmaker in Cowes stitches a Dacron mainsail, spinnaker, jib, battens, halyard, shackles, fairleads, "
        "winches and reefing lines."
    )
    messages = _make_messages(*([clay] * 5 + [boat] * 5) * 3)
    episodes = split_into_episodes(messages, None, _PAUSE)
    assert [episode.first_index for episode in episodes] == [0, 5, 10, 15, 20, 25]
    for number, episode in enumerate(episodes):
        assert split_into_episodes(messages[episode.first_index :], None, _PAUSE) == episodes[number:]


def test_small_talk_is_not_meaningful() -> None:
    assert not Episode(tuple(_make_messages("hi", "thanks!", "good night"))).is_meaningful
    assert Episode(tuple(_make_messages("hi", "I moved to Berlin."))).is_meaningful
