"""Small sample files in the formats of the data sets."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any


def alternate_messages(*texts: str) -> list[dict[str, str]]:
    """Return messages of a user and an assistant, alternating."""
    return [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(texts)]


def longmemeval_entry(question_id: str, question: str, gold: list[str], **changes: Any) -> dict[str, Any]:
    """Return a question with three sessions: two about boats, one about bread."""
    entry = {
        "question_id": question_id,
        "question_type": "multi-session",
        "question": question,
        "question_date": "2023/06/01 (Thu) 09:00",
        "answer": "whatever",
        "answer_session_ids": gold,
        "haystack_session_ids": ["s-boat", "s-bread", "s-boat-2"],
        "haystack_dates": ["2023/05/01 (Mon) 10:00", "2023/05/02 (Tue) 11:30", "2023/05/03 (Wed) 12:00"],
        "haystack_sessions": [
            alternate_messages("I painted my sailboat green.", "A fine colour."),
            alternate_messages("How long does rye dough rest?", "Overnight, then it goes into the oven.", "   "),
            alternate_messages("The sailboat leaks again.", "Mend the hull with epoxy."),
        ],
    }
    return {**entry, **changes}


LONGMEMEVAL = [
    longmemeval_entry("q1", "What about my sailboat?", ["s-boat", "s-boat-2"]),
    longmemeval_entry("q2", "sailboat", ["s-boat", "s-bread"], question_type="temporal-reasoning"),
    longmemeval_entry("q3_abs", "What is the name of my parrot?", ["s-boat"]),
]
"""The first question finds both of its sessions, the second one of two; the third is not scored."""

LOCOMO = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Zoë",
            "speaker_b": "Ravi",
            "session_2_date_time": "10:05 am on 3 July, 2023",
            "session_2": [
                {"speaker": "Ravi", "dia_id": "D2:1", "text": "My telescope arrived from Kraków."},
                {"speaker": "Zoë", "dia_id": "D2:2", "text": "Lovely!", "blip_caption": "a red lighthouse"},
            ],
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Zoë", "dia_id": "D1:1", "text": "I adopted a hedgehog called Måns."},
                {"speaker": "Ravi", "dia_id": "D1:2", "text": "What does it eat?"},
            ],
            "session_3_date_time": "9:00 am on 9 July, 2023",
        },
        "qa": [
            {"question": "Who has a hedgehog?", "answer": "Zoë", "evidence": ["D1:1"], "category": 4},
            {"question": "telescope", "answer": 1, "evidence": ["D2:1", "D1:2"], "category": 1},
            {"question": "lighthouse", "evidence": ["D1:1; D2:2", "D:11:26", "D", "D9:9", "D2:2"], "category": 2},
            {"question": "Is there a lighthouse?", "adversarial_answer": "no", "evidence": [], "category": 5},
        ],
    }
]

_BEAM_CHAT = [
    {
        "batch_number": 1,
        "time_anchor": None,
        "turns": [
            [
                {"role": "user", "id": 0, "time_anchor": "March-15-2024", "content": "Let us grow saffron."},
                {"role": "assistant", "id": 1, "content": "It needs dry soil."},
            ],
            [
                {"role": "user", "id": 2, "content": "The budget is ninety crowns."},
                {"role": "assistant", "id": 3, "content": "Noted."},
            ],
        ],
    },
    {"batch_number": 2, "turns": [[{"role": "user", "id": 4, "content": "The marmot ate every bulb."}]]},
]
_BEAM_QUESTIONS = {
    "abstention": [{"question": "Who sold the bulbs?", "rubric": []}],
    "information_extraction": [{"question": "saffron", "source_chat_ids": [0]}],
    "knowledge_update": [{"question": "marmot", "source_chat_ids": {"original_info": [4], "updated_info": [[3]]}}],
    "summarization": [{"question": "budget", "source_chat_ids": []}],
}


def write_json(path: Path, value: Any) -> Path:
    """Write a JSON file, compressed if its name ends in .gz, and return its path."""
    content = json.dumps(value, ensure_ascii=False).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_lines(path: Path, *lines: Any) -> Path:
    """Write a file of JSON lines, and return its path. Lines that are text are written as they are."""
    texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def write_beam(folder: Path, *, chats: tuple[str, ...] = ("1", "10", "2"), questions: Any = None) -> Path:
    """Write the unpacked folders of some chats, and return their folder."""
    for chat in chats:
        where = folder / "100K" / chat / "probing_questions"
        where.mkdir(parents=True)
        write_json(where / "probing_questions.json", questions or _BEAM_QUESTIONS)
        write_json(where.parent / "chat.json", _BEAM_CHAT)
        write_json(where.parent / "topic.json", {})
    return folder


def pack(folder: Path, archive: Path) -> Path:
    """Pack a folder as a .tar.gz, and return its path."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(folder, arcname=".")
    archive.write_bytes(buffer.getvalue())
    return archive
