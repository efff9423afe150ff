"""People: who took part in an episode, and which known people it mentions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rem.context import resolve_user_id
from rem.db.sql import query

if TYPE_CHECKING:
    from rem.db.store import Store

MAX_KNOWN_PEOPLE = 2000
MAX_NAMED_PEOPLE = 20
MIN_NAME_CHARS = 3
_WORD = re.compile(r"[^\W\d_]{2,}")
_TOKEN = re.compile(r"\w+")
_NOBODY = frozenset({"user", "assistant", "system", "tool", "human", "ai", "bot", "me", "you", "unknown", ""})


@dataclass(frozen=True, slots=True)
class KnownPerson:
    """Somebody whom the memory has an entry for."""

    key: str
    names: tuple[str, ...]


class KnownPeople:
    """The people that a scope knows of, to be found in texts."""

    def __init__(self, people: Sequence[KnownPerson], organizations: Sequence[str] = ()) -> None:
        self._organizations = _NameIndex(name.lower() for name in organizations if len(name) >= MIN_NAME_CHARS)
        self._key_of = {
            name.lower(): person.key for person in people for name in person.names if len(name) >= MIN_NAME_CHARS
        }
        self._name_words = {word for name in self._key_of if "@" not in name for word in _WORD.findall(name)}
        self._names = _NameIndex(self._key_of)

    @classmethod
    async def load(cls, store: Store) -> KnownPeople:
        """Those whom a store's scope sees: users, and entries about people. The user is not one of them."""
        async with store.executor.connection() as connection:
            owner = store.scope.tenant_id, store.scope.user_id
            rows = await connection.fetch(query("dream_moments", "known_people"), *owner, MAX_KNOWN_PEOPLE, "person")
            organizations = await connection.fetch(
                query("dream_moments", "known_people"), *owner, MAX_KNOWN_PEOPLE, "organization"
            )
        people = [KnownPerson(key, tuple(names)) for key, names, email in rows if not _is_owner(store, names, email)]
        return cls(people, [name for _, names, _ in organizations for name in names])

    def find_mentioned(self, texts: Iterable[str]) -> list[str]:
        """The keys of those whom texts name, in the order in which they come up."""
        found = (name for text in texts for name in self._names.find_in(text))
        return list(dict.fromkeys(self._key_of[name] for name in found if name in self._key_of))[:MAX_NAMED_PEOPLE]

    def find_names(self, texts: Iterable[str]) -> list[str]:
        """The words that texts name known people by, in whatever part ("Sarah" of Sarah Chen), and organisations."""
        texts = [text.lower() for text in texts]
        words = {word for text in texts for word in _WORD.findall(text)} & self._name_words
        words |= {name for text in texts for name in self._organizations.find_in(text)}
        return sorted(words)


class _NameIndex:
    """Names in lower case, to be found in texts. However many there are, only those are looked for whose first word a
    text has."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_first_word: dict[str, set[str]] = defaultdict(set)
        for name in names:
            first = _TOKEN.search(name)
            self._by_first_word[first.group() if first else ""].add(name)

    def find_in(self, text: str) -> Iterator[str]:
        """The names that stand in a text, in their order."""
        words = {"", *_TOKEN.findall(text.lower())}
        names = {name for word in words if word in self._by_first_word for name in self._by_first_word[word]}
        if names:
            # The longest first, or "Ann" would be found in "Ann Lee".
            parts = "|".join(map(re.escape, sorted(names, key=lambda name: (-len(name), name))))
            for match in re.finditer(rf"(?<!\w)(?:{parts})(?!\w)", text, re.IGNORECASE):
                yield match.group().lower()


def _is_owner(store: Store, names: Sequence[str], email: str | None) -> bool:
    """Whether an entry stands for the user, whose id is made from the e-mail address."""
    addresses = (address for address in (email, *names) if address and "@" in address)
    return store.scope.user_id in (*names, *(resolve_user_id(address) for address in addresses))


def list_speakers(metadata: Iterable[dict[str, object]]) -> list[str]:
    """The people who spoke, as their messages name them. A user and an assistant without a name are nobody."""
    named = (entry.get("speaker") for entry in metadata)
    speakers = (name.strip() for name in named if isinstance(name, str) and name.strip().lower() not in _NOBODY)
    return list(dict.fromkeys(speakers))[:MAX_NAMED_PEOPLE]
