"""Emotions: how somebody felt, where their own words say so."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_MOST = 3
_NEGATED_WITHIN = 3
"""So many words before it a `not` turns a feeling off."""
_WORD = re.compile(r"[a-zà-ÿ]+(?:['’][a-z]+)?")
_NO = (
    "not no never hardly nothing without don't doesn't didn't isn't wasn't aren't weren't can't couldn't won't wouldn't"
    " nicht kein keine nie pas jamais"
)
_NEGATIONS = frozenset(_NO.split())
_LEXICON = {
    "joy": "happy happily joy joyful delighted thrilled overjoyed ecstatic cheerful glücklich heureux heureuse feliz",
    "excitement": "excited exciting excitedly psyched pumped stoked",
    "gratitude": "grateful thankful gratitude dankbar reconnaissant agradecido agradecida",
    "pride": "proud proudly stolz fier fière orgulloso orgullosa",
    "relief": "relieved relief erleichtert soulagé aliviado aliviada",
    "love": "adore adores beloved loving verliebt amoureux",
    "hope": "hopeful hopefully optimistic",
    "sadness": "sad sadly unhappy heartbroken depressed miserable grief grieving mourning lonely cried traurig triste",
    "anger": "angry furious outraged mad annoyed irritated wütend verärgert colère enojado enojada",
    "frustration": "frustrated frustrating frustration fed-up frustriert",
    "fear": "afraid scared terrified frightened fear fearful angst peur miedo",
    "worry": "worried worrying anxious nervous anxiety uneasy besorgt nervös inquiet preocupado preocupada",
    "stress": "stressed stressful stress overwhelmed overworked burned-out gestresst stressé",
    "disappointment": "disappointed disappointing disappointment enttäuscht déçu decepcionado",
    "surprise": "surprised shocked astonished amazed überrascht surpris sorprendido",
    "shame": "ashamed embarrassed embarrassing guilty",
    "tiredness": "tired exhausted exhausting müde fatigué cansado cansada",
}
_FEELINGS = {word: feeling for feeling, words in _LEXICON.items() for word in words.split()}
FEELING_WORDS = frozenset(_FEELINGS)
"""All words that tell of a feeling."""
_JAPANESE = {
    "joy": ("嬉しい", "うれしい", "嬉しかった", "うれしかった", "楽しい", "楽しかった"),
    "sadness": ("悲しい", "かなしい", "悲しかった", "寂しい", "さびしい"),
    "anger": ("怒って", "腹が立", "むかつく"),
    "worry": ("心配", "不安"),
    "fear": ("怖い", "こわい", "怖かった"),
    "tiredness": ("疲れた", "つかれた", "疲れて"),
    "surprise": ("驚いた", "びっくり"),
}
_QUESTION = re.compile(r"[^.!?。！？\n]*[?？]")


def emotions_of(own_words: Iterable[str]) -> list[str]:
    """The feelings that somebody's own words tell of, the strongest first. Questions tell of none."""
    felt: Counter[str] = Counter()
    for text in own_words:
        stated = _QUESTION.sub(" ", text[:20_000])
        felt.update(_in_words(stated))
        felt.update(_in_japanese(stated))
    return [feeling for feeling, _ in sorted(felt.items(), key=lambda item: (-item[1], item[0]))[:_MOST]]


def _in_words(text: str) -> Iterable[str]:
    words = [found.group().replace("’", "'") for found in _WORD.finditer(text.lower())]
    for place, word in enumerate(words):
        feeling = _FEELINGS.get(word)
        if feeling and not _NEGATIONS.intersection(words[max(0, place - _NEGATED_WITHIN) : place]):
            yield feeling


def _in_japanese(text: str) -> Iterable[str]:
    for feeling, forms in _JAPANESE.items():
        if any(form in text for form in forms):
            yield feeling
