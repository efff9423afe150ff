"""People: the speakers of an episode, and the known people that a text mentions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rem.context import resolve_user_id
from rem.db.sql import query
from rem.dreams.profile_ids import make_profile_row_id

if TYPE_CHECKING:
    from rem.db.store import Store

MAX_KNOWN_PEOPLE = 2000
MAX_NAMED_PEOPLE = 20
MIN_NAME_CHARS = 3
_WORD = re.compile(r"[^\W\d_]{2,}")
_TOKEN = re.compile(r"\w+")
_NO_SPEAKERS = frozenset({"user", "assistant", "system", "tool", "human", "ai", "bot", "me", "you", "unknown", ""})
"""Roles and placeholders that some clients send as the name of a speaker."""


@dataclass(frozen=True, slots=True)
class KnownPerson:
    """A person with an entry in the memory."""

    key: str
    names: tuple[str, ...]


class KnownPeople:
    """Finds the known people and organisations of an owner in texts."""

    def __init__(self, people: Sequence[KnownPerson], organizations: Sequence[str] = ()) -> None:
        self._organizations = _NameIndex(name.lower() for name in organizations if len(name) >= MIN_NAME_CHARS)
        self._keys = {
            name.lower(): person.key for person in people for name in person.names if len(name) >= MIN_NAME_CHARS
        }
        self._name_words = {word for name in self._keys if "@" not in name for word in _WORD.findall(name)}
        self._names = _NameIndex(self._keys)

    @classmethod
    async def load(cls, store: Store) -> KnownPeople:
        """Load the people that the owner of a store sees: users, and entries about people, without the owner."""
        async with store.executor.connection() as connection:
            owner = store.scope.tenant_id, store.scope.user_id
            names, profile_id = query("dreams/moments/moments", "known_names"), make_profile_row_id(store)
            rows = await connection.fetch(names, *owner, MAX_KNOWN_PEOPLE, "person", profile_id)
            organizations = await connection.fetch(names, *owner, MAX_KNOWN_PEOPLE, "organization", profile_id)
        people = [KnownPerson(key, tuple(names)) for key, names, email in rows if not _is_owner(store, names, email)]
        return cls(people, [name for _, names, _ in organizations for name in names])

    def find_mentioned(self, texts: Iterable[str]) -> list[str]:
        """Return the keys of the people whom texts mention, in the order in which they occur."""
        names = (name for text in texts for name in self._names.find_in(text))
        return list(dict.fromkeys(self._keys[name] for name in names if name in self._keys))[:MAX_NAMED_PEOPLE]

    def find_names(self, texts: Iterable[str]) -> list[str]:
        """Return the words of known people's names ("Sarah" of Sarah Chen) and the names of organisations in texts."""
        texts = [text.lower() for text in texts]
        words = {word for text in texts for word in _WORD.findall(text)} & self._name_words
        words |= {name for text in texts for name in self._organizations.find_in(text)}
        return sorted(words)


class _NameIndex:
    """Finds names in texts. It looks only for names whose first word the text contains, so there may be many."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_first_word: dict[str, set[str]] = defaultdict(set)
        for name in names:
            first = _TOKEN.search(name)
            self._by_first_word[first.group() if first else ""].add(name)

    def find_in(self, text: str) -> Iterator[str]:
        """Yield the names in a text in lower case, in their order."""
        words = {"", *_TOKEN.findall(text.lower())}
        names = {name for word in words if word in self._by_first_word for name in self._by_first_word[word]}
        if names:
            # The longest first, or "Ann" would be found in "Ann Lee".
            pattern = "|".join(map(re.escape, sorted(names, key=lambda name: (-len(name), name))))
            for match in re.finditer(rf"(?<!\w)(?:{pattern})(?!\w)", text, re.IGNORECASE):
                yield match.group().lower()


def _is_owner(store: Store, names: Sequence[str], email: str | None) -> bool:
    """Return whether an entry is about the owner, whose id is made from the e-mail address."""
    addresses = (address for address in (email, *names) if address and "@" in address)
    return store.scope.user_id in (*names, *(resolve_user_id(address) for address in addresses))


def list_speakers(metadata: Iterable[dict[str, object]]) -> list[str]:
    """Return the names of the speakers in the metadata of messages, each once. Messages without a name are left out."""
    names = (entry.get("speaker") for entry in metadata)
    speakers = (name.strip() for name in names if isinstance(name, str) and name.strip().lower() not in _NO_SPEAKERS)
    return list(dict.fromkeys(speakers))[:MAX_NAMED_PEOPLE]
