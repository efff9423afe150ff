"""All dreams by name, in the order in which one builds on the other."""

from __future__ import annotations

from rem.dreaming.dreamer import Dream

DREAMS: dict[str, Dream] = {}
