"""Echo: keeps a parent agent from repeating what its child has just told the user."""

from __future__ import annotations

import re

_SPACE = re.compile(r"\s+")


class Echo:
    """Text that may be a repetition is held back until it turns out to be none."""

    def __init__(self) -> None:
        self._heard = ""
        self._held = ""

    def hear(self, text: str) -> None:
        """A child has said something."""
        self._heard += text

    def pass_on(self, text: str) -> str:
        """What of the parent's text can be shown now."""
        if not self._heard:
            return text
        self._held += text
        if _plain(self._held) in _plain(self._heard):
            return ""
        new, self._held, self._heard = self._held, "", ""
        return new


def _plain(text: str) -> str:
    return _SPACE.sub(" ", text).strip().casefold()
