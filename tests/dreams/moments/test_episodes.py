"""Sessions are split into episodes at pauses and topic changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import numpy as np

from rem.dreams.claims import ClaimSource, RowRef
from rem.dreams.moments.draft import draft_episode, draft_note
from rem.dreams.moments.episodes import MAX_EPISODE_MESSAGES, Episode, split_into_episodes
from rem.dreams.moments.people import KnownPeople
from rem.dreams.run import SourceMessage
from rem.models import Resource
from tests.dreams.sample_sessions import MARCH

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


def test_episode_of_unrelated_statements_is_mixed() -> None:
    texts = ("My sister moved to Lyon.", "The gate code is 4471.", "The ferry is booked.", "Tom sings.")
    messages = _make_messages(*texts)
    vectors = {message.id: np.eye(4, dtype=np.float32)[place] for place, message in enumerate(messages)}
    assert [episode.is_mixed for episode in split_into_episodes(messages, vectors, _PAUSE)] == [True]
    near = dict.fromkeys(vectors, np.eye(4, dtype=np.float32)[0])
    for other_vectors in (near, None):
        assert [episode.is_mixed for episode in split_into_episodes(messages, other_vectors, _PAUSE)] == [False]
    dialogue = [replace(message, metadata={"speaker": "Ana"}) for message in messages]
    assert [episode.is_mixed for episode in split_into_episodes(dialogue, vectors, _PAUSE)] == [False]


def test_mixed_episode_is_named_after_its_topics() -> None:
    messages = tuple(_make_messages("dentist on the hill", "The kettle leaks.", "Leopard is a novel."))
    for is_mixed, name in ((True, "Dentist, kettle, leaks and Leopard"), (False, "Dentist on the hill")):
        draft = draft_episode(Episode(messages, is_mixed), uuid4(), KnownPeople([]))
        assert draft is not None
        assert draft.name == f"{MARCH:%Y-%m-%d} {name}"


def test_moment_of_a_remembered_statement_has_its_day_once() -> None:
    note = Resource(name=f"{MARCH:%Y-%m-%d} My bike is red", content="My bike is red.", timestamp=MARCH)
    draft = draft_note(note, ClaimSource(RowRef("resources", note.id), "bike"), KnownPeople([]))
    assert draft is not None
    assert draft.name == note.name


def test_small_talk_is_not_meaningful() -> None:
    assert not Episode(tuple(_make_messages("hi", "thanks!", "good night"))).is_meaningful
    assert Episode(tuple(_make_messages("hi", "I moved to Berlin."))).is_meaningful
