"""Pick the part of a long text that fits a question best."""

from __future__ import annotations

from rem.text import FUNCTION_WORDS, find_sentence_spans, split_words

MAX_SCANNED_CHARS = 50_000
MARK_CHARS = len("… ")
STEM_CHARS = 5
"""Words with the same first letters count as the same word: ferry, ferries."""


def pick_excerpt(text: str, question: str, max_chars: int) -> str:
    """Return the text; if it is too long, the sentences with most words of the question, with marks of omission.

    Of equally good parts the first one is returned.
    """
    if len(text) <= max_chars:
        return text
    max_chars -= 2 * MARK_CHARS
    start = _find_best_start(text[:MAX_SCANNED_CHARS], _list_stems(question), max_chars)
    excerpt = text[start : start + max_chars]
    if start + max_chars < len(text):
        excerpt = f"{excerpt.rsplit(maxsplit=1)[0] if ' ' in excerpt else excerpt} …"
    return f"… {excerpt}" if start else excerpt


def _find_best_start(text: str, wanted: frozenset[str], max_chars: int) -> int:
    """Return the start of the sentence from which `max_chars` characters have most of the wanted words."""
    sentences = [(start, end, _list_stems(text[start:end]) & wanted) for start, end in find_sentence_spans(text)]
    best_start, best_words = 0, -1
    for position, (start, _, _) in enumerate(sentences):
        found: set[str] = set()
        for _, end, words in sentences[position:]:
            if end - start > max_chars and found:
                break
            found |= words
            if end - start > max_chars:
                break
        if len(found) > best_words:
            best_start, best_words = start, len(found)
    return best_start


def _list_stems(text: str) -> frozenset[str]:
    return frozenset(word[:STEM_CHARS] for word in split_words(text) if word not in FUNCTION_WORDS)
