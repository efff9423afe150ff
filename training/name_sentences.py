"""Make notes and chats with people, organisations and places from training/names.yaml and training/name_frames.yaml."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import yaml

Sentence = list[tuple[str, str]]
WORD = re.compile(r"['’]s\b|[\w@#]+(?:[-'’.&](?!s\b)\w+)*|[^\w\s]")
"""The words of a text, as the tagger reads them: a genitive and each mark are words of their own."""
_MARK = re.compile(r"\{(\w+)\}")
_FOLDER = Path(__file__).parent
LOWER_SHARE, TYPO_SHARE, NO_MARK_SHARE = 0.22, 0.06, 0.35
STREETS = [
    "Mill",
    "Church",
    "Station",
    "High",
    "Park",
    "Elm",
    "Grove",
    "Queen",
    "Linden",
    "Bahnhof",
    "Goethe",
    "Garten",
]
EMOJI = ["🎉", "😬", "😂", "👍", "❤️", "🙏", "lol", "haha", "xx", "pls", "thx", "imo", "tbh"]


class NameSentences:
    """Makes sentences. `names` has further names of each kind, as lists of words, such as those of a corpus."""

    def __init__(self, seed: int, names: dict[str, list[list[str]]]) -> None:
        self._chance = random.Random(seed)
        content: dict[str, Any] = _load("names.yaml")
        self._frames: dict[str, list[str]] = _load("name_frames.yaml")
        self._slots: dict[str, list[str]] = {k: [str(v) for v in values] for k, values in content["slots"].items()}
        self._first, self._last = content["first_names"].split(), _split_last_names(content["last_names"])
        self._brands, self._parts = [str(b) for b in content["brands"]], content["org_parts"]
        self._places, self._street_ends = content["places"], content["street_ends"]
        self._names = names

    def make(self) -> Sentence:
        """Return one note or message of one to four sentences."""
        is_german = self._chance.random() < 0.22
        count = self._chance.choice([1, 1, 1, 2, 2, 3, 4])
        message: Sentence = []
        for number in range(count):
            sentence = self._fill(self._choose_frame(is_german))
            if self._chance.random() < 0.7 and sentence:
                word, label = sentence[0]
                sentence[0] = (word[:1].upper() + word[1:], label)
            if number < count - 1 or self._chance.random() > NO_MARK_SHARE:
                sentence.append((self._chance.choice([".", ".", ".", ".", "!", ",", ";", "-", "?"]), "O"))
            message += sentence
        return self._roughen(message)

    def _choose_frame(self, is_german: bool) -> str:
        draw = self._chance.random()
        if is_german:
            return self._chance.choice(self._frames["german_none" if draw < 0.25 else "german"])
        if draw < 0.22:
            return self._chance.choice(self._frames["none"])
        if draw < 0.58:
            return self._chance.choice(self._frames["sentences"])
        if draw < 0.8:
            return "{p} " + self._chance.choice(self._frames["predicates"])
        return f"{self._chance.choice(self._frames['contacts'])} {{p}}{self._chance.choice(self._frames['tails'])}"

    def _fill(self, frame: str) -> Sentence:
        sentence: Sentence = []
        for piece in re.split(r"(\{\w+\})", frame):
            mark = _MARK.fullmatch(piece)
            if mark is None or mark[1] in self._slots:
                text = self._expand(self._chance.choice(self._slots[mark[1]])) if mark else piece
                sentence += [(word, "O") for word in WORD.findall(text)]
            else:
                sentence += self._label(mark[1])
        return sentence

    def _expand(self, text: str) -> str:
        return _MARK.sub(lambda m: self._chance.choice(self._slots[m[1]]), text)

    def _label(self, mark: str) -> Sentence:
        kind = {"o": "ORG", "l": "LOC", "r": "LOC"}.get(mark, "PER")
        text = {"o": self._organisation, "l": self._place, "r": self._street}.get(mark, lambda: self._person(mark))()
        words = WORD.findall(text)
        articles = {"the", "die", "der", "das"}
        lead = [(words.pop(0), "O")] if len(words) > 1 and words[0] in articles else []
        return lead + [(word, f"{'I' if i else 'B'}-{kind}") for i, word in enumerate(words)]

    def _person(self, mark: str) -> str:
        if mark == "p":
            mark = self._chance.choice("fffFFx")
        if mark == "x" and self._names["PER"]:
            return " ".join(self._chance.choice(self._names["PER"]))
        first, last = self._first_name(), self._last_name()
        if mark == "f":
            return first if self._chance.random() < 0.97 else f"{first} {last[0]}"
        if mark == "s":
            return last
        draw = self._chance.random()
        if draw < 0.08:
            return f"{first[0]}. {last}"
        if draw < 0.14:
            return f"{first} {self._first_name()} {last}"
        return f"{first} {last}"

    def _first_name(self) -> str:
        if self._chance.random() < 0.25 and self._names["PER"]:
            return self._chance.choice(self._names["PER"])[0]
        name = self._chance.choice(self._first)
        return f"{name}-{self._chance.choice(self._first)}" if self._chance.random() < 0.02 else name

    def _last_name(self) -> str:
        if self._chance.random() < 0.3 and self._names["PER"]:
            return self._chance.choice(self._names["PER"])[-1]
        return self._chance.choice(self._last)

    def _organisation(self) -> str:
        draw, choose = self._chance.random(), self._chance.choice
        if draw < 0.34:
            return choose(self._brands)
        if draw < 0.5 and self._names["ORG"]:
            return " ".join(choose(self._names["ORG"]))
        if draw < 0.62:
            return f"{self._last_name()} {choose(self._parts['after_name'])}"
        if draw < 0.74:
            return choose(self._parts["of_place"]).replace("{l}", choose(self._places).removeprefix("the "))
        if draw < 0.8:
            return choose(self._parts["pubs"])
        name = choose(self._parts["stems"]) + choose(["", " ", ""]) + choose(self._parts["ends"])
        name = " ".join(word[:1].upper() + word[1:] for word in name.split())
        return f"{name} {choose(self._parts['after_name'])}" if self._chance.random() < 0.5 else name

    def _place(self) -> str:
        if self._chance.random() < 0.4 and self._names["LOC"]:
            return " ".join(self._chance.choice(self._names["LOC"]))
        return self._chance.choice(self._places)

    def _street(self) -> str:
        end = self._chance.choice(self._street_ends)
        stem = self._last_name() if self._chance.random() < 0.5 else self._chance.choice(STREETS)
        return f"{stem} {end}" if end[0].isupper() else f"{stem}{end}"

    def _roughen(self, message: Sentence) -> Sentence:
        """Write some messages in lower case, with typing errors, or with an emoji."""
        if self._chance.random() < LOWER_SHARE:
            message = [(word.lower(), label) for word, label in message]
        elif self._chance.random() < 0.02:
            message = [(word.upper(), label) for word, label in message]
        if self._chance.random() < 0.15:
            message = [(self._mistype(word) if label == "O" else word, label) for word, label in message]
        if self._chance.random() < 0.06:
            message.append((self._chance.choice(EMOJI), "O"))
        return message

    def _mistype(self, word: str) -> str:
        if len(word) < 4 or self._chance.random() > TYPO_SHARE * 2:
            return word
        place = self._chance.randrange(len(word) - 1)
        swapped = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
        return swapped if self._chance.random() < 0.6 else word[:place] + word[place + 1 :]


def _load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((_FOLDER / name).read_text(encoding="utf-8"))
    return content


def _split_last_names(text: str) -> list[str]:
    """Return family names. "van", "de", "da" and "von" belong to the word after them."""
    return re.findall(r"(?:van |de |da |von )?[^\s]+", text)
