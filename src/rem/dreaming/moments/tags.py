"""Topics: what an episode is about, in two to five tags."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from rem.dreaming.entities.evidence import ORGANIZATION, PERSON
from rem.dreaming.entities.extraction import extract_evidence
from rem.dreaming.text.secrets import mask_secrets
from rem.dreaming.text.words import compute_rarity, extract_content_words, extract_phrases

MAX_EMOTIONS = 3
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


def extract_emotions(own_words: Iterable[str]) -> list[str]:
    """The feelings that somebody's own words tell of, the strongest first. Questions tell of none."""
    felt: Counter[str] = Counter()
    for text in own_words:
        stated = _QUESTION.sub(" ", text[:20_000])
        felt.update(_find_in_words(stated))
        felt.update(_find_in_japanese(stated))
    return [feeling for feeling, _ in sorted(felt.items(), key=lambda item: (-item[1], item[0]))[:MAX_EMOTIONS]]


def _find_in_words(text: str) -> Iterable[str]:
    words = [found.group().replace("’", "'") for found in _WORD.finditer(text.lower())]
    for place, word in enumerate(words):
        feeling = _FEELINGS.get(word)
        if feeling and not _NEGATIONS.intersection(words[max(0, place - _NEGATED_WITHIN) : place]):
            yield feeling


def _find_in_japanese(text: str) -> Iterable[str]:
    for feeling, forms in _JAPANESE.items():
        if any(form in text for form in forms):
            yield feeling


MAX_TOPICS = 5
MAX_TAG_CHARS = 40
_LEAST_SHARE = 0.35
"""Of the best topic's weight: what weighs less is mentioned, not a topic. Two are named in any case."""
_ACTION_ENDINGS = ("ing", "ed", "ly")
_ACTION_SHARE = 0.5
_PHRASE_SHARE = 1.6
_REMARK = re.compile(r"\[[^\]\n]{0,300}\](?!\()")
"""What somebody did while speaking, in brackets."""
_ADDRESS = re.compile(r"<?[^\s<>@]{1,64}@[^\s<>@]{1,255}>?|\b(?:https?|ftp)://\S+|\bwww\.\S+")
HOST_NAME = re.compile(
    r"\b(?:[a-z0-9-]{1,63}\.){1,4}(?:com|org|net|io|ai|dev|app|co|edu|gov|example|test|local|de|at|ch|uk|eu|fr|nl|us|info)\b",
    re.IGNORECASE,
)
"""The name of a host or of whoever has it, which is no topic."""
_COMPANY_WORDS = "gmbh ltd inc llc llp plc corp ag kg ug co company limited incorporated sarl bv"
COMPANY_WORDS = frozenset(_COMPANY_WORDS.split())
"""What names of companies end in."""
_VERB_WORDS = (
    "moved named called loved liked hated brought bought sold sent paid met found lost left kept held built wrote read "
    "began begun became broke chose chosen drove driven ate eaten fell felt flew forgot forgotten grew knew led lent "
    "meant ran rode slept spent spoke spoken stood swam taught threw understood wore won lived visited arrived "
    "returned decided finished planned helped asked wanted needed tried prefer prefers preferred lives bring "
    "brings buy buys become becomes begin begins choose forget forgets happen happens remember remembers arrive "
    "arrives decide decides"
)
VERB_WORDS = frozenset(_VERB_WORDS.split())
"""What is done, which says little of what it is about."""
_FEWEST_OWN_WORDS = 2
_NUMBER_WORDS = frozenset(
    [
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "twenty",
        "thirty",
        "forty",
        "fifty",
        "sixty",
        "hundred",
        "thousand",
        "million",
        "billion",
        "half",
        "dozen",
        "couple",
        "second",
        "third",
        "fourth",
        "percent",
        "drei",
        "vier",
        "fünf",
        "zwölf",
        "cent",
        "mille",
    ]
)
_READ_FOR_NAMES = 20_000


def extract_topics(texts: Iterable[tuple[str, float]], people: Iterable[str] = ()) -> list[str]:
    """The topics of texts, each of which counts for so much; the heaviest first, in kebab case.

    People are none, nor are organisations: those that are given, and those that the texts introduce. Nor are
    addresses, feelings and numbers. Where people's own words (a share of 1) have topics, what only an assistant says is
    none.
    """
    texts = [(mask_secrets(text), share) for text, share in texts]
    others = {word for name in people for word in extract_content_words(name)}
    others |= {word for text, _ in texts for word in _name_words(text[:_READ_FOR_NAMES])}
    others |= FEELING_WORDS | _NUMBER_WORDS | COMPANY_WORDS
    own: set[str] = set()
    words: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    for whole, share in texts:
        text = HOST_NAME.sub(" ", _ADDRESS.sub(" ", _REMARK.sub(" ", whole)))
        for word in extract_content_words(text):
            if word not in others:
                words[word] += share  # type: ignore[assignment]
                if share >= 1:
                    own.add(word)
        for pair in extract_phrases(text):
            if others.isdisjoint(pair):
                pairs[pair] += share  # type: ignore[assignment]
    if len(own) >= _FEWEST_OWN_WORDS:
        words = Counter({word: count for word, count in words.items() if word in own})
        pairs = Counter({pair: count for pair, count in pairs.items() if own.issuperset(pair)})
    weights = {word: _weight(word, count) for word, count in _merge_plurals(words).items()}
    for (first, second), count in pairs.items():
        if count >= 2:
            tag = f"{first}-{second}"
            weights[tag] = _PHRASE_SHARE * (_weight(first, count) + _weight(second, count)) / 2
    return _select_topics(weights)


def _name_words(text: str) -> set[str]:
    """The words of the names of people and organisations that a text introduces."""
    return {
        word
        for evidence in extract_evidence(text, 0)
        if evidence.entity_type in (PERSON, ORGANIZATION)
        for name in evidence.words
        for word in extract_content_words(name)
    }


def _weight(word: str, count: float) -> float:
    is_action = word in VERB_WORDS or (word.isascii() and len(word) > 5 and word.endswith(_ACTION_ENDINGS))
    return (_ACTION_SHARE if is_action else 1.0) * compute_rarity(word) * count / (count + 1.0)


def _merge_plurals(words: Counter[str]) -> Counter[str]:
    """The same counts with a plural under its singular, where both are there."""
    merged: Counter[str] = Counter()
    for word, count in words.items():
        singular = word[:-1] if len(word) > 3 and word.endswith("s") and word[:-1] in words else word
        merged[singular] += count
    return merged


def _select_topics(weights: dict[str, float]) -> list[str]:
    chosen: list[str] = []
    # The longer of two that weigh the same says more.
    for tag, weight in sorted(weights.items(), key=lambda item: (-item[1], -len(item[0]), item[0])):
        if len(chosen) == MAX_TOPICS:
            break
        if len(chosen) >= 2 and weight < _LEAST_SHARE * weights[chosen[0]]:
            break
        parts = set(tag.split("-"))
        if len(tag) <= MAX_TAG_CHARS and not any(parts & set(other.split("-")) for other in chosen):
            chosen.append(tag)
    return chosen


def to_tag(text: str) -> str:
    """A label in kebab case; empty if there is nothing in it to read."""
    kept = "".join(character if character.isalnum() else " " for character in text.lower())
    return "-".join(kept.split())[:MAX_TAG_CHARS].strip("-")
