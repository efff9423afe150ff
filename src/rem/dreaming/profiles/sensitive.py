"""What is not written into a profile: matters that would hurt if somebody else read them.

A short list of words, in English and German, by which topics, names and sentences are left out: health, faith,
politics, intimate matters, money troubles and trouble with the law, origin, and everything that opens a door. It errs
on the side of leaving out; what was said stays in the conversation, where it can be found. A user who wants such a
thing in the profile writes it there.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

_HEALTH = (
    "aa-meeting aa-meetings abortion abtreibung addict addiction alcoholic alcoholism alkoholiker alkoholismus allergy "
    "anxiety asylum autism burnout cancer chemotherapy clinic detox dialysis entzug entzugsklinik hospice hospiz "
    "inpatient klinik krankenhaus nursing-home pflegeheim psychiatrie psychiatry reha sanatorium sobriety sucht "
    "covid dementia depression depressed diabetes diagnosis diagnose diagnosed disability behinderung disease "
    "disorder eating-disorder epilepsy gesundheit health healthcare hiv hospital illness insomnia krankheit krebs "
    "medical medication medicine medikament miscarriage pregnancy pregnant psychiatric psychiatrist psychotherapy "
    "rehab schwanger schwangerschaft sick sickness suicidal suicide suizid surgery symptom therapist therapy "
    "therapie"
)
_FAITH = (
    "atheism atheist bible buddhism buddhist catholic christian christianity church faith glaube hindu hinduism "
    "islam jew jewish judaism kirche koran mosque muslim prayer quran religion religious synagogue torah"
)
_POLITICS = (
    "conservative democrat election leftist liberal party-membership political politics politik republican "
    "rightist socialist trade-union union-membership vote voting wahl"
)
_INTIMATE = (
    "affair bisexual divorce ethnicity gay homosexual lesbian lgbt nationality queer racial scheidung sex sexual "
    "sexuality sexuell transgender"
)
_TROUBLE = (
    "arrest arrested bankruptcy cannabis casino cocaine criminal debt drogen drug frauenhaus gambling gefängnis gehalt "
    "glücksspiel heroin insolvency jail kiffen kokain lawsuit marijuana meth payday poker-machine prison probation "
    "salary schulden smoking-weed women-shelter"
)
_DOORS = (
    "api-key apikey credential credentials credit-card iban kennwort passphrase passport password passwort "
    "passwords pin-code private-key secret-key secret secrets social-security ssh-key ssn zugangsdaten"
)
_WORDS = frozenset(" ".join((_HEALTH, _FAITH, _POLITICS, _INTIMATE, _TROUBLE, _DOORS)).split())
_WORD = re.compile(r"[^\W_]+")
_KEY_LIKE = re.compile(
    r"\b(?:sk|pk|ghp|gho|xox[abp]|AKIA|eyJ)[-_A-Za-z0-9]{12,}|-----BEGIN|\b\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}\b|"
    r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,}"
)
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+")


def is_sensitive(text: str) -> bool:
    """Whether a text speaks of something that does not belong into a profile."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    pairs = {f"{one}-{two}" for one, two in pairwise(words)}
    return bool(_KEY_LIKE.search(text)) or not _WORDS.isdisjoint(
        {*words, *pairs, *(word.rstrip("s") for word in words)}
    )


def remove_sensitive_sentences(text: str) -> str:
    """The sentences of a text that may be in a profile."""
    return " ".join(sentence for sentence in _SENTENCE.split(text.strip()) if not is_sensitive(sentence))
