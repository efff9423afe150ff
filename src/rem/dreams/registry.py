"""Registry of the dreams: their names and descriptions, in the order in which one builds on the other.

It imports a dream only when it is loaded, because the command line needs the names and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rem.errors import InvalidInputError

if TYPE_CHECKING:
    from rem.dreams.run import Dream


@dataclass(frozen=True, slots=True)
class DreamEntry:
    """A dream in the registry."""

    name: str
    description: str
    load: Callable[[], Dream]


def _load_entities() -> Dream:
    from rem.dreams.entities.dream import EntitiesDream

    return EntitiesDream()


def _load_moments() -> Dream:
    from rem.dreams.entities.dream import link_moments_to_entities
    from rem.dreams.moments.dream import MomentsDream

    # New moments mention entities that the entities dream found before them.
    return MomentsDream(after_writing=link_moments_to_entities)


def _load_affinity() -> Dream:
    from rem.dreams.affinity import AffinityDream

    return AffinityDream()


def _load_ontology() -> Dream:
    from rem.dreams.ontology.dream import OntologyDream

    return OntologyDream()


def _load_profiles() -> Dream:
    from rem.dreams.profiles.dream import ProfilesDream

    return ProfilesDream()


_ENTRIES = (
    DreamEntry("entities", "Find people, organisations and projects, with their aliases.", _load_entities),
    DreamEntry("moments", "Find episodes in sessions and texts, with their people.", _load_moments),
    DreamEntry("affinity", "Draw edges between related rows, for TRAVERSE.", _load_affinity),
    DreamEntry("ontology", "Extract data from new files by the agents in ontology_configs.", _load_ontology),
    DreamEntry("profiles", "Describe the work, interests and preferences of a user.", _load_profiles),
)
DREAMS = {entry.name: entry for entry in _ENTRIES}


def load_dreams(names: Collection[str] | None = None) -> list[Dream]:
    """Return the dreams with these names, or all of them, in the order of the registry.

    Raise InvalidInputError if there is no dream of a name.
    """
    unknown = set(names or ()) - set(DREAMS)
    if unknown:
        raise InvalidInputError(f"There is no dream {', '.join(sorted(unknown))}; there are {', '.join(DREAMS)}.")
    return [entry.load() for name, entry in DREAMS.items() if names is None or name in names]
