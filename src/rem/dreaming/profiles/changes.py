"""Changes: where users say that they moved somewhere, or what they are at which employer, as lines of a profile.

A name after "moved to" or "started at" may be a tool, a team or a page as well; what may be one of these tells nothing.
"""

from __future__ import annotations

import re

from rem.dreaming.entities.introductions import is_organization
from rem.dreaming.entities.name_words import is_capitalised, word_set, words_after

_LONG_AGO = re.compile(
    r"[^.;!?]{0,40}\b(?:in (?:the )?(?:19|20)\d\d|years ago|back then|at the time|as an? (?:kid|child|student)"
    r"|when (?:i|we)|(?:but|and)(?: then)?(?: \w+)? (?:back|left|quit|returned)"
    r"|for (?:a|an|one|two|three|\w+ty|\d+) (?:\w+ )?(?:days?|weeks?|months?|years?)"
    r"|(?:damals|vor \w+ jahren|als kind|als ich))\b",
    re.IGNORECASE,
)
"""After what is said: then it tells of the past, and may have ended since."""
_CONDITION = re.compile(
    r"\b(?:when|once|as soon as|after|in case|the (?:day|year|time)|sobald|nachdem|als)(?: [\w'’]+)?\s*\Z",
    re.IGNORECASE,
)
"""Right before it: it will be so, or was so then."""
_PLAIN_NAME = re.compile(r"[^\W\d_]['’]?[^\W\d_A-Z]*(?:[-'’ ][^\W\d_]+)*\.?")
"""No capital inside of a word, as products like them."""
_THE_PLACES = word_set("netherlands uk us usa united philippines bahamas maldives algarve azores alps ruhr hague")
_NO_PLACE = word_set(
    """
    linux ubuntu debian fedora arch windows mac macos android ios iphone pixel chrome firefox safari edge brave vim
    neovim emacs python rust golang java kotlin swift ruby rails django flask react vue angular svelte node deno bun
    elixir scala haskell julia postgres mysql sqlite mongo redis kafka oracle snowflake spark excel word outlook
    gmail google microsoft apple amazon azure slack discord teams zoom notion obsidian evernote trello asana jira
    linear basecamp confluence github gitlab git bitbucket docker podman kubernetes terraform ansible heroku vercel
    netlify cloudflare shopify stripe paypal spotify netflix whatsapp signal telegram dropbox proton fastmail claude
    gemini copilot cursor team project plan phase level step chapter page room building floor unit section tab
    branch version stage tier sprint group department sales marketing engineering finance operations support product
    design management research legal procurement logistics consulting accounting plant premium pro standard basic
    """
)
_NO_PLACE_AFTER = re.compile(
    r"\s+(?:team|group|department|project|channel|tab|plan|branch|board|server|account|tier|office|desk|framework|app"
    r"|version|column|folder|list|phase|stage|\d)",
    re.IGNORECASE,
)
_NO_ROLE = word_set(
    """
    guest customer client member patient regular visitor fan beginner user student pupil stranger newcomer bit little
    lot volunteer speaker attendee subscriber shareholder kunde kundin mitglied gast patientin besucher besucherin fan
    studentin schüler schülerin
    """
)
_NO_EMPLOYER = word_set("page chapter level step phase room gate line section platform door table seat stage unit noon")


def new_home(text: str, found: re.Match[str]) -> str:
    """Where somebody moved to, if it may be a place and nothing tells that it was long ago."""
    words, end = words_after(text, found.end())
    name = " ".join(words)
    may_be_place = _PLAIN_NAME.fullmatch(name) and words[0].lower() not in _NO_PLACE
    if not may_be_place or _NO_PLACE_AFTER.match(text, end) or not _is_of_now(text, found, end):
        return ""
    if found.group().rstrip().lower().endswith(" the") and words[0].lower() not in _THE_PLACES:
        return ""
    country, _ = words_after(text, end + 2) if text[end : end + 2] == ", " else ([], end)
    return ", ".join([name, " ".join(country[:3])] if country else [name])


def new_employer(text: str, found: re.Match[str]) -> str:
    """For whom somebody works by now; nothing for who is only a guest or a customer there."""
    words, end = words_after(text, found.end(), shouted=True, most=5)
    # Of what is only a kind of house (a hospital), the rest of the name tells that it is one of them.
    is_name = is_organization(words) or (len(words) > 1 and is_organization(words[1:]))
    role = (found.groupdict().get("role") or "").split()
    if not is_name or words[0].lower() in _NO_EMPLOYER or (role and role[-1].lower() in _NO_ROLE):
        return ""
    return " ".join(words) if _is_of_now(text, found, end) else ""


def new_role(text: str, found: re.Match[str]) -> str:
    """What somebody is at an employer that has a name."""
    return found.group("role") if new_employer(text, found) else ""


def new_german_role(text: str, found: re.Match[str]) -> str:
    """The same in German, where a role has a capital."""
    role = new_role(text, found)
    return role if role and is_capitalised(role.split()[-1]) else ""


def _is_of_now(text: str, found: re.Match[str], end: int) -> bool:
    return not _CONDITION.search(text, 0, found.start()) and not _LONG_AGO.match(text, end)
