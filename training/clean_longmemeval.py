"""Make training memories from LongMemEval questions, without any text that a measured set has.

    python -m training.clean_longmemeval longmemeval_train.json.gz OUT.jsonl --eval longmemeval_dev=… beam=…

A memory has the answering sessions of eight questions. The other sessions of the histories are left out, because the
histories of the evaluation questions are drawn from the same pool. The answers are the turns marked `has_answer`.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

from rem.text import clean_text
from training.overlap import hashes, text_hash

QUESTIONS_PER_MEMORY = 8


def read_question(entry: dict[str, Any], measured: set[str]) -> dict[str, Any] | None:
    """Return a question with its sessions, or None if a measured set has one of their texts."""
    sessions, gold = [], []
    for session_id, turns in zip(entry["haystack_session_ids"], entry["haystack_sessions"], strict=True):
        if session_id not in entry["answer_session_ids"]:
            continue
        messages = []
        for index, turn in enumerate(turns):
            if text_hash(turn["content"]) in measured:
                return None
            if turn["content"].strip():
                message_id = f"{session_id}:{index}"
                messages.append({"id": message_id, "text": clean_text(turn["content"]), "role": turn["role"]})
                gold += [message_id] if turn.get("has_answer") else []
        sessions.append(messages)
    is_known = text_hash(entry["question"]) in measured
    return {"sessions": sessions, "question": entry["question"], "gold": gold} if gold and not is_known else None


def main() -> None:
    """Write the memories."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--eval", nargs="+", required=True)
    options = parser.parse_args()
    measured = set().union(*(hashes(entry) for entry in options.eval))
    entries = json.loads(gzip.decompress(options.source.read_bytes()))
    kept = [question for entry in entries if (question := read_question(entry, measured))]
    lines = []
    for start in range(0, len(kept), QUESTIONS_PER_MEMORY):
        group = kept[start : start + QUESTIONS_PER_MEMORY]
        sessions = {session[0]["id"]: session for question in group for session in question["sessions"]}
        questions = [{"question": question["question"], "gold": question["gold"]} for question in group]
        memory = {"sessions": list(sessions.values()), "notes": [], "questions": questions}
        lines.append(json.dumps(memory, ensure_ascii=False) + "\n")
    options.out.write_text("".join(lines), encoding="utf-8")
    print(f"{len(kept)} of {len(entries)} questions in {len(lines)} memories")


if __name__ == "__main__":
    main()
