"""Introductions: where somebody says who or what a name stands for ("my colleague …", "… works at …", "project …")."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from rem.dreaming.entities.evidence import ORGANIZATION, PERSON, PROJECT, Evidence, EvidenceKind, StatedRelation
from rem.dreaming.entities.name_parsing import (
    TITLES,
    fold_words,
    get_sentence_at,
    parse_name_after,
    parse_name_before,
    word_set,
)

_RELATIONS = {
    "colleague": """
        colleague coworker co-worker teammate boss manager supervisor designer developer engineer analyst accountant
        assistant intern ceo cto cfo coo founder co-founder cofounder director consultant lawyer recruiter mentor
        contact planner tester architect researcher administrator secretary treasurer chair editor writer
        photographer technician kollege kollegin kollegen chef chefin vorgesetzter vorgesetzte mitarbeiter
        mitarbeiterin collègue patron patronne cheffe compañero compañera colega jefe jefa
    """,
    "friend": "friend bestie buddy pal freund freundin ami amie amigo amiga",
    "wife": "wife frau femme esposa mujer",
    "husband": "husband mann mari esposo marido",
    "partner": "girlfriend boyfriend fiancé fiancée partnerin lebensgefährte lebensgefährtin novio novia",
    "sister": "sister schwester sœur soeur hermana",
    "brother": "brother bruder frère hermano",
    "mother": "mother mom mum mutter mama mère madre",
    "father": "father dad vater papa père padre",
    "daughter": "daughter tochter fille hija",
    "son": "son sohn fils hijo",
    "grandmother": "grandmother grandma oma abuela",
    "grandfather": "grandfather grandpa opa abuelo",
    "aunt": "aunt tante tía",
    "uncle": "uncle onkel oncle tío",
    "cousin": "cousin cousine primo prima",
    "niece": "niece nichte nièce sobrina",
    "nephew": "nephew neffe neveu sobrino",
    "neighbor": "neighbor neighbour nachbar nachbarin voisin voisine vecino vecina",
    "roommate": "roommate flatmate housemate mitbewohner mitbewohnerin colocataire",
    "doctor": "doctor physician arzt ärztin médecin médico médica",
    "therapist": "therapist therapeut therapeutin psychologist thérapeute terapeuta",
    "dentist": "dentist zahnarzt zahnärztin dentiste dentista",
    "teacher": "teacher professor tutor lehrer lehrerin professeure professeur profesor profesora",
    "coach": "coach trainer trainerin entrenador",
    "landlord": "landlord landlady vermieter vermieterin propriétaire casero casera",
}
_RELATION_OF = {word: relation for relation, words in _RELATIONS.items() for word in words.split()}
RELATION_WORDS = frozenset(_RELATION_OF)
FAMILY_RELATIONS = word_set(
    """
    wife husband partner sister brother mother father daughter son grandmother grandfather aunt uncle cousin niece
    nephew
    """
)
_PARTIES = word_set(
    """
    client customer supplier vendor employer company agency bank insurer kunde kundin lieferant arbeitgeber firma
    client cliente proveedor empresa fournisseur employeur
    """
)
_PERSON_RELATION = "|".join(sorted(map(re.escape, _RELATION_OF), key=len, reverse=True))
_PARTY = "|".join(sorted(_PARTIES, key=len, reverse=True))
_MY = r"(?:my|our|mein(?:e[nmrs]?)?|unser(?:e[nmrs]?)?|mon|ma|notre|mi|nuestr[oa])"
_ADJECTIVES = r"(?:[^\W\d_]{2,14} ){0,2}"

_MY_RELATION = re.compile(
    rf"\b{_MY} {_ADJECTIVES}({_PERSON_RELATION}|{_PARTY})(?:,| is| is called| is named| heißt| namens|:)? +"
    r"(?=[^\W\d_])",
    re.IGNORECASE,
)
_IS_MY_RELATION = re.compile(
    rf"(?: is| was| ist| est| es|,) {_MY} {_ADJECTIVES}({_PERSON_RELATION}|{_PARTY})\b", re.IGNORECASE
)
_HIRED = re.compile(r"\b(?:we|i)(?: have|'ve|’ve)?(?: just| finally| recently)? hired +", re.IGNORECASE)
_WORKS_AT = re.compile(
    r"\b(?:(?:now |currently )?works?(?: now)? (?:at|for)|is now (?:at|with)"
    r"|(?:jetzt |nun )?arbeitet?(?: jetzt| nun)? bei(?: der| dem)?"
    r"|travaille(?: maintenant| désormais)? chez"
    r"|(?:ahora )?trabaj[ao](?: ahora)? (?:en|para)) +(?=[^\W\d_])",
    re.IGNORECASE,
)
_PROJECT = re.compile(r"\b(project|projekt|projet|proyecto) +(?=[\"“„«']?[^\W\d_])", re.IGNORECASE)
_PROJECT_KEY = re.compile(r"(?<![\w/.@#-])project-([a-z0-9]{2,30}(?:-[a-z0-9]{1,30}){0,3})(?![\w/@-])")
_TITLE = re.compile(rf"\b({'|'.join(TITLES)})\b\.? +(?=[^\W\d_])", re.IGNORECASE)
_WRITTEN_FORMS = word_set(
    "GmbH AG Inc Ltd LLC Corp KG OHG PLC plc SARL SAS Srl SRL AB Oy BV NV Pty LLP GbR UG ApS SpA SE SA AS"
)
_LEGAL_FORM = re.compile(rf" (?:{'|'.join(sorted(_WRITTEN_FORMS))})\b")
_NO_PROJECT = word_set(
    """
    manager managers management plan plans planning team teams lead leader leads status update updates kickoff
    budget owner owners charter brief scope timeline board office coordinator director review report files folder
    page runway reactor gutenberg euler settings structure name names title description deadline work ideas idea
    number one two based wide specific level related management-tool ende anfang mitte leiter leiterin leitung start
    stand termin zeit abschluss partner phase teil jahr chef equipo équipe de du del
    """
)
_NO_ORGANIZATION = word_set(
    """
    home night nights day work money myself himself herself yourself free fun school university college office
    church hospital christmas easter weekends weekend morning evening noon peace change good others people god
    government court hause nacht tag abend schule uni
    """
)
_NO_FAMILY_NAME = word_set(
    """
    pepper robot coffee bean right wrong president speaker chairman secretary clean
    """
)


def find_introductions(text: str, place: int, *, is_own_words: bool) -> Iterator[Evidence]:
    """Who and what a text introduces. In a document, whose "my" may be anyone's, full names count only."""
    for one in chain(
        _find_relations(text), _find_hired(text), _find_titled(text), _find_projects(text), _find_organizations(text)
    ):
        is_full = one.entity_type != PERSON or (len(one.words) > 1 and one.title is None)
        if is_own_words or is_full:
            yield _with_text(one, text, place)


def _with_text(one: Evidence, text: str, place: int) -> Evidence:
    return replace(one, place=place, says=get_sentence_at(text, one.start))


def _find_relations(text: str) -> Iterator[Evidence]:
    for found in _MY_RELATION.finditer(text):
        words, _ = parse_name_after(text, found.end(), most=5)
        yield from _build_related(found.group(1), words, found.end())
    for found in _IS_MY_RELATION.finditer(text):
        yield from _build_related(found.group(1), parse_name_before(text, found.start()), found.start())


def _build_related(label: str, words: list[str], start: int) -> Iterator[Evidence]:
    if not words:
        return
    relation = _RELATION_OF.get(label.lower())
    if relation is None:
        if may_be_organization(words):
            yield Evidence(kind=EvidenceKind.WORDS, entity_type=ORGANIZATION, words=tuple(words), start=start)
        return
    title = TITLES.get(words[0].lower().rstrip("."))
    if title and len(words) > 1:
        yield Evidence(
            kind=EvidenceKind.TITLE,
            entity_type=PERSON,
            words=tuple(words[1:]),
            title=title,
            relation=relation,
            start=start,
        )
    elif not title:
        yield Evidence(
            kind=EvidenceKind.WORDS, entity_type=PERSON, words=tuple(words[:4]), relation=relation, start=start
        )


def _find_hired(text: str) -> Iterator[Evidence]:
    for found in _HIRED.finditer(text):
        words, _ = parse_name_after(text, found.end())
        if len(words) > 1:
            yield Evidence(
                kind=EvidenceKind.WORDS, entity_type=PERSON, words=tuple(words), relation="colleague", start=found.end()
            )


def _find_titled(text: str) -> Iterator[Evidence]:
    for found in _TITLE.finditer(text):
        if not found.group(1)[0].isupper():
            continue
        words, _ = parse_name_after(text, found.end(), most=3)
        if words and words[0].lower() not in _NO_FAMILY_NAME:
            title = TITLES[found.group(1).lower()]
            yield Evidence(
                kind=EvidenceKind.TITLE, entity_type=PERSON, words=tuple(words), title=title, start=found.start()
            )


def _find_projects(text: str) -> Iterator[Evidence]:
    for found in _PROJECT.finditer(text):
        words, _ = parse_name_after(text, found.end(), most=3, shouted=True)
        words = words[:2]
        if not words or words[0].lower() in _NO_PROJECT or (words[0].isupper() and found.group(1).isupper()):
            continue
        if words[-1].lower() in _NO_PROJECT:
            words = words[:-1]
        # Every German noun has a capital, so one more place must say it.
        confidence = 0.4 if found.group(1).lower() == "projekt" else 0.5
        name = ("Project", *words)
        yield Evidence(
            kind=EvidenceKind.WORDS, entity_type=PROJECT, words=name, confidence=confidence, start=found.start()
        )
    for found in _PROJECT_KEY.finditer(text):
        if found.group(1) not in _NO_PROJECT and found.group(1).partition("-")[0] not in _NO_PROJECT:
            words = [part.capitalize() for part in found.group(1).split("-")]
            yield Evidence(kind=EvidenceKind.WORDS, entity_type=PROJECT, words=("Project", *words), start=found.start())


def _find_organizations(text: str) -> Iterator[Evidence]:
    for found in _WORKS_AT.finditer(text):
        words, _ = parse_name_after(text, found.end(), shouted=True, most=5)
        if may_be_organization(words):
            yield Evidence(kind=EvidenceKind.WORDS, entity_type=ORGANIZATION, words=tuple(words), start=found.end())
            person = _find_person_before(text, found.start())
            if len(person) > 1:
                yield Evidence(
                    kind=EvidenceKind.WORDS, entity_type=PERSON, words=tuple(person), start=found.start() - 1
                )
    for found in _LEGAL_FORM.finditer(text):
        form = found.group().strip()
        words = parse_name_before(text, found.start(), most=4)
        if words and may_be_organization(words):
            yield Evidence(kind=EvidenceKind.WORDS, entity_type=ORGANIZATION, words=(*words, form), start=found.start())


def find_employments(text: str, place: int) -> Iterator[StatedRelation]:
    """Who is said to work where."""
    for found in _WORKS_AT.finditer(text):
        words, _ = parse_name_after(text, found.end(), shouted=True, most=5)
        person = _find_person_before(text, found.start())
        if person and may_be_organization(words):
            yield StatedRelation(tuple(person), "works_at", strip_legal_form(tuple(words)), place)


def _find_person_before(text: str, end: int) -> list[str]:
    """The name before a verb, also with an address in between."""
    if text[:end].rstrip().endswith(">"):
        end = text.rfind("<", max(0, end - 120), end)
    return parse_name_before(text, end) if end > 0 else []


def may_be_organization(words: list[str]) -> bool:
    """Whether words that stand where an employer is named can be its name: nobody works at Night."""
    return bool(words) and words[0].lower() not in _NO_ORGANIZATION and bool(fold_words(words))


def strip_legal_form(words: tuple[str, ...]) -> tuple[str, ...]:
    """An organisation's name as people say it."""
    short = list(words)
    while len(short) > 1 and short[-1].rstrip(".") in _WRITTEN_FORMS:
        short.pop()
    return tuple(short)
