"""PrivacyPolicy: keep, mask or refuse what a text contains of secrets and personal data, before it is stored."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

from rem.errors import PrivacyError
from rem.privacy.detector import Finding, PrivacyKind, find_private_data

if TYPE_CHECKING:
    from rem.settings import PrivacySettings

PERSONAL_KINDS = frozenset({PrivacyKind.EMAILS, PrivacyKind.PHONES})
"""Kinds that may identify a row, so they stay in names, addresses and edges."""
SEALED_PREFIX = "rem1:"
_SEALED = re.compile(r"rem1:[a-z0-9][a-z0-9-]{0,31}:[A-Za-z0-9_-]*+:[A-Za-z0-9_-]{50,}+")
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)")


class PrivacyPolicy:
    """The decision for each kind. It is applied where rows are written, so every interface obeys it."""

    def __init__(
        self,
        kinds: frozenset[PrivacyKind],
        refused: frozenset[PrivacyKind] = frozenset(),
        *,
        masks_sealed: bool = False,
    ) -> None:
        """Mask these kinds, and encrypted values if `masks_sealed`. Refuse a text with one of the `refused` kinds."""
        self._kinds = kinds
        self._refused = refused
        self._masks_sealed = masks_sealed

    @classmethod
    def from_settings(cls, settings: PrivacySettings) -> PrivacyPolicy:
        """Return the policy that the settings describe."""
        actions = {kind: getattr(settings, kind.value) for kind in PrivacyKind}
        return cls(
            frozenset(kind for kind, action in actions.items() if action != "keep"),
            frozenset(kind for kind, action in actions.items() if action == "refuse"),
        )

    @property
    def is_off(self) -> bool:
        """Return True if every kind is kept, so that no text needs to be read."""
        return not self._kinds and not self._masks_sealed

    @cached_property
    def masking(self) -> PrivacyPolicy:
        """Return the policy that masks what this one refuses. An answer that the user has seen must not be lost."""
        return PrivacyPolicy(self._kinds, masks_sealed=self._masks_sealed)

    @cached_property
    def for_identities(self) -> PrivacyPolicy:
        """Return the policy for texts that identify a row: addresses, edges, tags."""
        return PrivacyPolicy(
            self._kinds - PERSONAL_KINDS, self._refused - PERSONAL_KINDS, masks_sealed=self._masks_sealed
        )

    def refusing_sealed_values(self) -> PrivacyPolicy:
        """Return the policy that also masks encrypted values: nobody can let REM decrypt one that they stole."""
        return PrivacyPolicy(self._kinds, self._refused, masks_sealed=True)

    def mask(self, text: str, field: str = "text") -> str:
        """Return the text with `[masked: api key]` in place of each finding. Raise PrivacyError for what is refused."""
        return _replace(text, self._find(text, field))

    def check_label(self, label: str, field: str = "name") -> str:
        """Return a label as it is. Raise PrivacyError if it contains a secret: masked names could not be told apart."""
        findings = self._search(label, self._kinds - PERSONAL_KINDS)
        if findings:
            raise PrivacyError(f"The {field} contains a {findings[0].label}: choose another {field}.")
        return label

    def mask_value(self, value: Any, field: str = "value") -> Any:
        """Return a JSON value with all its texts masked."""
        if isinstance(value, str):
            return self.mask(value, field)
        if isinstance(value, dict):
            return {self.mask_value(name, field): self._mask_named(name, item, field) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.mask_value(item, field) for item in value]
        return value

    def mask_json(self, document: bytes, field: str = "value") -> bytes:
        """Return JSON with all its texts masked. The usual document without a finding is read only once, as text."""
        if not self.may_contain([unescape_json(document)]):
            return document
        return orjson.dumps(self.mask_value(orjson.loads(document), field))

    def may_contain(self, texts: Iterable[str]) -> bool:
        """Return whether one of some texts may contain a finding. They are read as one text, which is much faster."""
        return bool(self._search("\n".join(texts), self._kinds))

    def list_masked(self, texts: Iterable[str]) -> list[str]:
        """Return the labels of what is masked in some texts, each once."""
        return list(dict.fromkeys(finding.label for text in texts for finding in self._search(text, self._kinds)))

    def _mask_named(self, name: Any, value: Any, field: str) -> Any:
        """Mask a value of an object. A random text is a credential if its name says so: `{"api_key": "…"}`."""
        if not isinstance(value, str):
            return self.mask_value(value, field)
        prefix = f"{name}="
        findings = [
            finding._replace(start=max(finding.start - len(prefix), 0), end=finding.end - len(prefix))
            for finding in self._find(prefix + value, field)
            if finding.end > len(prefix)
        ]
        return _replace(value, findings)

    def _find(self, text: str, field: str) -> list[Finding]:
        findings = self._search(text, self._kinds)
        for finding in findings:
            if finding.kind in self._refused:
                raise PrivacyError(
                    f"The {field} contains a {finding.label}, which is not stored here: remove it and try again "
                    f"(PRIVACY__{finding.kind.upper()}=refuse)."
                )
        return findings

    def _search(self, text: str, kinds: frozenset[PrivacyKind]) -> list[Finding]:
        findings = find_private_data(text, kinds)
        if not self._masks_sealed or SEALED_PREFIX not in text:
            return findings
        sealed = [
            Finding(*match.span(), PrivacyKind.CREDENTIALS, "encrypted value") for match in _SEALED.finditer(text)
        ]
        outside = [
            found
            for found in findings
            if not any(found.start < other.end and other.start < found.end for other in sealed)
        ]
        return sorted([*sealed, *outside])


def unescape_json(document: bytes) -> str:
    """Return JSON as a text to search in. An escaped line break must not look like a part of a word."""
    text = document.decode()
    return _ESCAPE.sub(" ", text) if "\\" in text else text


def describe_masked(labels: Iterable[str]) -> str:
    """Return the sentence that tells the user what was masked."""
    return f"Masked in what was stored: {', '.join(dict.fromkeys(labels))}."


def _replace(text: str, findings: list[Finding]) -> str:
    if not findings:
        return text
    parts, done = [], 0
    for finding in findings:
        parts += [text[done : finding.start], f"[masked: {finding.label}]"]
        done = finding.end
    return "".join([*parts, text[done:]])
