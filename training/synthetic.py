"""Generate memories of invented people with questions in other words (training/synthetic_frames.py).

    python -m training.synthetic OUT --notes 120 --chats 60

OUT/notes.jsonl has statements and notes of one person; OUT/chats.jsonl has conversations of two people. The questions
of OUT/*.held_out.jsonl are about facts that the others never ask about.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from pathlib import Path
from typing import Any

from training.synthetic_frames import ENDINGS, FILLERS, FRAMES, OPENINGS, REACTIONS, SLOTS, Frame

SELF = {
    "I": "I",
    "my": "my",
    "me": "me",
    "am": "am",
    "have": "have",
    "do": "do",
    "was": "was",
    "s": "",
    "es": "",
    "ies": "y",
    "myself": "myself",
    "I_": "I",
    "mine": "mine",
}
_MARK = re.compile(r"\{(\w+)\}")
FACTS_PER_MEMORY = 45
SESSIONS, FACTS_PER_SESSION = 10, 5
HELD_OUT_SHARE = 8
"""Questions about one of this many facts are only asked in the held-out memories."""


def other(name: str) -> dict[str, str]:
    """Return the forms for a person with a name."""
    return {
        "I": name,
        "my": f"{name}'s",
        "me": name,
        "am": "is",
        "have": "has",
        "do": "does",
        "was": "was",
        "s": "s",
        "es": "es",
        "ies": "ies",
        "myself": "themselves",
        "I_": name,
        "mine": f"{name}'s",
    }


def fill(template: str, forms: dict[str, str], values: dict[str, str]) -> str:
    """Fill in the marks of a text, and start it with a capital letter."""
    text = _MARK.sub(lambda m: forms.get(m[1]) or values.get(m[1], ""), template)
    text = text.replace("themselves's", "their").strip()
    return text[:1].upper() + text[1:]


def choose_values(chance: random.Random) -> dict[str, str]:
    """Return one value for each slot."""
    return {name: chance.choice(options) for name, options in SLOTS.items()} | {"number": str(chance.randint(2, 9876))}


def punctuate(text: str, chance: random.Random) -> str:
    """Finish a statement as people write it: mostly with a full stop, at times in lower case."""
    text = text if text.endswith(("!", "?", ".", ")")) else text + chance.choice([".", ".", ".", "", "!"])
    return text.lower() if chance.random() < 0.08 else text


def asks_about(frame: Frame, *, held_out: bool) -> bool:
    """Return whether questions about a fact are asked: for held-out memories, those that training never asks."""
    return (FRAMES.index(frame) % HELD_OUT_SHARE == HELD_OUT_SHARE - 1) == held_out


def make_notes(number: int, chance: random.Random, *, held_out: bool) -> dict[str, Any]:
    """Return a memory of statements and notes about oneself and about others, with questions."""
    friends = chance.sample(SLOTS["person"], 4)
    items: list[dict[str, Any]] = []
    questions: list[dict[str, Any]] = []
    answered: set[str] = set()
    for index, frame in enumerate(chance.sample(FRAMES, FACTS_PER_MEMORY)):
        statements, asked, noise = frame
        forms = SELF if chance.random() < 0.7 else other(chance.choice(friends))
        values = choose_values(chance)
        item_id = f"n{number}-{index}"
        text = punctuate(fill(chance.choice(statements), forms, values), chance)
        if chance.random() < 0.25:
            # A second statement in the same breath, which other questions of the memory are not about.
            text = f"{text} {chance.choice(FILLERS)}" if chance.random() < 0.5 else f"{chance.choice(FILLERS)} {text}"
        items.append({"id": item_id, "text": text})
        for question in chance.sample(asked, 2):
            filled = fill(question, forms, values)
            if filled not in answered and asks_about(frame, held_out=held_out):
                answered.add(filled)
                questions.append({"question": filled, "gold": [item_id]})
        if chance.random() < 0.35:
            items.append({"id": f"{item_id}x", "text": punctuate(chance.choice(noise), chance)})
    chance.shuffle(items)
    cut = len(items) // 3
    notes = []
    for start in range(0, cut, 2):
        pair = items[start : start + 2]
        ids = {item["id"] for item in pair}
        notes.append({"id": pair[0]["id"], "title": None, "text": "\n".join(item["text"] for item in pair)})
        for asked_question in questions:
            asked_question["gold"] = [pair[0]["id"] if gold in ids else gold for gold in asked_question["gold"]]
    rest = items[cut:]
    return {"sessions": [rest[i : i + 8] for i in range(0, len(rest), 8)], "notes": notes, "questions": questions}


def make_chat(number: int, chance: random.Random, *, held_out: bool) -> dict[str, Any]:
    """Return the conversations of two people, with questions that name them."""
    first, second = chance.sample(SLOTS["person"], 2)
    frames = chance.sample(FRAMES, min(len(FRAMES), SESSIONS * FACTS_PER_SESSION))
    sessions, questions = [], []
    answered: set[str] = set()
    for session in range(SESSIONS):
        messages: list[dict[str, Any]] = []

        def say(who: str, text: str, messages: list[dict[str, Any]] = messages, session: int = session) -> str:
            message_id = f"c{number}-{session}-{len(messages)}"
            messages.append({"id": message_id, "speaker": who, "text": f"{who}: {text}"})
            return message_id

        say(first, chance.choice(FILLERS))
        for frame in frames[session * FACTS_PER_SESSION : (session + 1) * FACTS_PER_SESSION]:
            statements, asked, noise = frame
            who, listener = (first, second) if chance.random() < 0.5 else (second, first)
            values = choose_values(chance)
            text = fill(chance.choice(statements), SELF, values)
            opening = chance.choice(OPENINGS)
            text = opening + (text if not opening or text.startswith("I ") else text[:1].lower() + text[1:])
            if chance.random() < 0.3:
                say(listener, fill(chance.choice(asked), {**SELF, **YOU}, values))
            gold = [say(who, text + chance.choice(ENDINGS))]
            if chance.random() < 0.6:
                say(listener, chance.choice(REACTIONS))
            if chance.random() < 0.4:
                say(who, chance.choice(noise) + ".")
            if chance.random() < 0.4:
                say(chance.choice((first, second)), chance.choice(FILLERS))
            for question in chance.sample(asked, 2):
                filled = fill(question, other(who), values)
                if filled not in answered and asks_about(frame, held_out=held_out):
                    answered.add(filled)
                    questions.append({"question": filled, "gold": gold})
        sessions.append(messages)
    return {"sessions": sessions, "notes": [], "questions": questions}


YOU = {
    "I": "you",
    "my": "your",
    "me": "you",
    "am": "are",
    "was": "were",
    "myself": "yourself",
    "I_": "you",
    "mine": "yours",
}


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--notes", type=int, default=60)
    parser.add_argument("--chats", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, make, count in (("notes", make_notes, options.notes), ("chats", make_chat, options.chats)):
        for suffix, memories in (("", count), (".held_out", count // 4)):
            chance = random.Random(f"{name}{suffix} {options.seed}")
            made = [make(number, chance, held_out=bool(suffix)) for number in range(memories)]
            lines = [json.dumps(memory, ensure_ascii=False) + "\n" for memory in made]
            (options.out / f"{name}{suffix}.jsonl").write_text("".join(lines), encoding="utf-8")
            print(f"{name}{suffix}: {memories} memories, {sum(len(m['questions']) for m in made)} questions")


if __name__ == "__main__":
    main()
