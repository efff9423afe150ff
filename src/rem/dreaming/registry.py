"""All dreams by name, in the order in which one builds on the other."""

from __future__ import annotations

from rem.dreaming.affinity.dream import AffinityDream
from rem.dreaming.dreamer import Dream
from rem.dreaming.entities.dream import EntitiesDream
from rem.dreaming.moments.dream import MomentsDream
from rem.dreaming.ontology.dream import OntologyDream
from rem.dreaming.profiles.dream import ProfilesDream

DREAMS: dict[str, Dream] = {
    dream.name: dream for dream in (EntitiesDream(), MomentsDream(), AffinityDream(), OntologyDream(), ProfilesDream())
}
