"""Texts give evidence by addresses, signatures, introductions and handles, and no text takes long."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from uuid import UUID

import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.dreams.claims import ClaimSource, RowRef
from rem.dreams.entities.candidates import Candidate, build_candidates
from rem.dreams.entities.content import find_statements_about
from rem.dreams.entities.dream import EntitiesDream
from rem.dreams.entities.emails import address_fits_name, find_mailboxes, find_signatures
from rem.dreams.entities.evidence import StatedRelation, find_beginnings, normalize_rel_type
from rem.dreams.entities.introductions import find_employments
from rem.dreams.entities.name_parsing import get_sentence_at, parse_name_after, parse_name_before
from rem.dreams.entities.rule_extraction import extract_evidence, find_possible_names
from rem.dreams.entities.subjects import SourceText
from rem.dreams.text.masking import MAX_TEXT_CHARS, mask_code_and_links
from tests.dreams.entities.sample_sessions import list_entity_keys, store_session
from tests.dreams.sample_claims import start_run


def find_candidates(*texts: str, is_own_words: bool = True) -> dict[str, Candidate]:
    """Return the candidates of a conversation by name."""
    masked = [mask_code_and_links(text) for text in texts]
    evidence = [
        item for index, text in enumerate(masked) for item in extract_evidence(text, index, is_own_words=is_own_words)
    ]
    return {candidate.name: candidate for candidate in build_candidates(evidence, masked)}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Sarah Chen <sarah.chen@acme.com>", "Sarah Chen"),
        ("Tell Sarah Chen <sarah.chen@acme.com> that", "Sarah Chen"),
        ('"Chen, Sarah" <sc@acme.com>', "Sarah Chen"),
        ("Siobhán O'Connor <siobhan.oconnor@lir.ie>", "Siobhán O'Connor"),
        ("Jean-Luc D’Arcy <jl@lir.ie>", "Jean-Luc D’Arcy"),
        ("Ludwig van der Berg <lvdb@berg.nl>", "Ludwig van der Berg"),
        ("Иван Петров <ivan.petrov@yandex.ru>", "Иван Петров"),
        ("山田太郎 <taro@kitsune.jp>", "山田太郎"),
        ("SARAH CHEN <sarah.chen@acme.com>", None),
        ("write to <sarah@acme.com>", None),
        ("`Jane Doe <jane.doe@corp.com>`", None),
        ("```\nJane Doe <jane.doe@corp.com>\n```", None),
        ("Customer Support <support@acme.com>", None),
    ],
)
def test_display_name_of_address(text: str, name: str | None) -> None:
    certain = [candidate.name for candidate in find_candidates(text).values() if candidate.confidence >= 0.75]
    assert certain == ([name] if name else [])


@pytest.mark.parametrize(
    "local", ["s.chen", "schen", "sarah.chen", "sarah_chen", "chen.sarah", "sarah", "chens", "sarahc"]
)
def test_address_fits_name(local: str) -> None:
    assert address_fits_name(local, ("sarah", "chen"))


@pytest.mark.parametrize("local", ["m.chen", "sarah.miller", "info", "s", "sc", "ahchen", ""])
def test_address_does_not_fit_name(local: str) -> None:
    assert not address_fits_name(local, ("sarah", "chen"))


def test_role_addresses_and_free_providers_are_no_evidence() -> None:
    assert find_candidates("info@acme.com support.team@acme.com no-reply@acme.com 12345@acme.com") == {}
    assert set(find_candidates("lara.novak@gmail.com", "lara.novak@gmail.com")) == {"Lara Novak"}


def test_several_addresses_of_a_domain_make_an_organization() -> None:
    one = find_candidates("ann.lee@borealis-paper.co.uk")["Borealis Paper"]
    two = find_candidates("ann.lee@borealis-paper.co.uk and bo.yang@borealis-paper.co.uk")["Borealis Paper"]
    assert one.confidence < 0.75 <= two.confidence
    assert two.keys == {"borealis-paper.co.uk"}


def test_signature_gives_name_position_and_organization() -> None:
    text = "Hi,\nall done.\n\nBest regards,\nMarcus Lindqvist\nHead of Sales | Borealis AB\n+46 8 123 456 78\n"
    person, organization = find_signatures(text, 0)
    assert person.words == ("Marcus", "Lindqvist")
    assert person.confidence >= 0.75
    assert organization.words == ("Borealis", "AB")
    assert list(find_signatures("Best regards, as always, from the whole team\nYours\nwe will see", 0)) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("My colleague Amara Diallo will call.", "Amara Diallo"),
        ("Amara Diallo is our new lead designer.", "Amara Diallo"),
        ("Amara Diallo, our designer, is ill.", "Amara Diallo"),
        ("We just hired Amara Diallo.", "Amara Diallo"),
        ("my sister Anna's flat", "Anna (sister)"),
        ("meine Schwester Anna kommt", "Anna (sister)"),
        ("ma sœur Anna arrive", "Anna (sister)"),
        ("mi hermana Anna viene", "Anna (sister)"),
        ("my dentist Dr. Okafor", "Dr. Okafor"),
        ("I work for Globex Labs now.", "Globex Labs"),
        ("Ich arbeite bei der Hansen Logistik GmbH.", "Hansen Logistik"),
        ("Je travaille chez Verdanne.", "Verdanne"),
        ("Trabajo en Molinos Andinos.", "Molinos Andinos"),
        ("our client Halvorsen Shipping pays", "Halvorsen Shipping"),
        ("the proyecto Aurora", "Project Aurora"),
        ("see project-heron-two.", "Project Heron Two"),
    ],
)
def test_introduction_is_evidence(text: str, name: str) -> None:
    assert list(find_candidates(text)) == [name]


@pytest.mark.parametrize(
    "text",
    [
        "My Manager is ill. My dear Diary. My God.",
        "I work at Night, I work for Myself.",
        "The Project Manager has a Project Plan, project-wide and project-based.",
        "Unser Kunde will das Projekt Ende Juni.",
        "MY COLLEAGUE JOHN SHOUTS",
        "Peter Falk and Marie Curie met in New York.",
        "@property @Override @here npm i @angular/core a@b user@localhost",
        "",
        "\x00\u200b\ufeff \U0001f600 <@> <<>> @@@ ''' \"\" ((()))",
    ],
)
def test_text_without_evidence(text: str) -> None:
    assert find_candidates(text) == {}


def test_first_names_in_documents_are_no_evidence() -> None:
    text = "My brother Edmund and Mr. Bennet agreed. My colleague Ann Lee came."
    assert list(find_candidates(text, is_own_words=False)) == ["Ann Lee"]


def test_employments_and_their_beginnings() -> None:
    (one,) = find_employments("Sarah Chen <s@acme.com> works at Acme Inc today", 3)
    assert one == StatedRelation(("Sarah", "Chen"), "works_at", ("Acme",), 3)
    acme, globex, back = (
        StatedRelation(("Sarah",), "works_at", (name,), place) for place, name in enumerate(("A", "G", "A"))
    )
    assert find_beginnings([acme, back, globex]) == [acme, globex, back]
    assert find_beginnings([acme, StatedRelation(acme.src, acme.rel_type, acme.dst, 5)]) == [acme]


def test_relation_names_are_normalized() -> None:
    assert normalize_rel_type("Works For") == "works_at"
    assert normalize_rel_type("depends-on") == "depends_on"
    for nonsense in ("", "DROP TABLE x;", "a" * 300, "1st", "пишет", "works_at; --"):
        assert normalize_rel_type(nonsense) is None


def test_possible_names_are_complete_names() -> None:
    names = find_possible_names(
        "Yesterday Sarah Chen met Tom. Mark my words, sarah-chen wrote to t@x.io about hybrid search."
    )
    assert {"Sarah Chen", "Tom", "sarah-chen", "t@x.io", "hybrid search"} <= set(names)
    assert not {"Sarah", "Mark", "Yesterday", "my words"} & set(names)


_ADVERSARIAL = [
    "a" * 400_000,
    "A" * 400_000,
    "Aa " * 150_000,
    "my " * 150_000,
    "my colleague " * 40_000,
    "my aa bb " * 50_000,
    "a.b-" * 100_000 + "@",
    "a@" * 200_000,
    "a@a." * 100_000,
    "<" * 200_000 + "@" * 200_000,
    "Sarah Chen <a@b.co> " * 20_000,
    "`" * 400_000,
    "``` a ` b " * 40_000,
    "@a" * 200_000,
    "project-a" * 50_000,
    "project-a-" * 40_000,
    "Dr. " * 100_000,
    "Best regards,\n" * 30_000,
    "\n" * 400_000,
    " " * 400_000,
    "," * 400_000,
    "works at " * 45_000,
    "O'" * 200_000,
    "1-" * 200_000,
    "Aa" * 200_000 + " GmbH",
    "x GmbH" * 60_000,
    "http://" * 50_000,
    "    a;" * 60_000,
    "田" * 400_000,
    "e\u0301" * 200_000,
]


@pytest.mark.parametrize("text", _ADVERSARIAL, ids=[repr(text[:12]) for text in _ADVERSARIAL])
def test_extraction_is_fast_for_hostile_texts(text: str) -> None:
    started = time.process_time()
    plain = mask_code_and_links(text)
    assert len(plain) <= MAX_TEXT_CHARS
    build_candidates(extract_evidence(plain, 0, speaker="A B"), [plain])
    list(find_employments(plain, 0))
    find_possible_names(plain)
    list(find_mailboxes(plain))
    parse_name_after(plain, 0)
    parse_name_before(plain, len(plain))
    get_sentence_at(plain, len(plain) // 2)
    assert time.process_time() - started < 5


async def test_megabyte_message_is_processed(rem: Rem, alice: Store) -> None:
    words = "The Quick Brown Fox met my colleague Amara Diallo in Room Seven and said so. "
    await store_session(rem, alice, words * 13_000, words)
    started = time.process_time()
    # Without the indexer, whose time is that of the embedder.
    await EntitiesDream().derive(await start_run(rem, alice))
    assert time.process_time() - started < 10
    assert await list_entity_keys(alice) == ["amara-diallo"]


@pytest.mark.parametrize(
    ("text", "people"),
    [
        ("My partner Mojca likes it.", [("Mojca", "partner")]),
        ("His son Damjan is six.", [("Damjan", "his son")]),
        ("Ana's brother Luka plays the oboe.", [("Luka", "Ana's brother")]),
        ("Henrik rang. His daughter Linde studies in Liège.", [("Linde", "Henrik's daughter")]),
        ("My business partner Acme has closed.", []),
        ("The firm's partner left, and his wife too.", []),
        ("Her sister lives in Rome.", []),
    ],
)
def test_relatives_of_others_are_people(text: str, people: list[tuple[str, str]]) -> None:
    assert [(" ".join(item.words), item.relation) for item in extract_evidence(text, 0)] == people


def test_relative_of_somebody_counts_in_any_text() -> None:
    (item,) = extract_evidence("Ana's brother Luka plays. My sister Eva sings.", 0, is_own_words=False)
    assert item.words == ("Luka",)


def test_statements_have_no_marks_of_lists_and_headings() -> None:
    source = ClaimSource(RowRef("resources", UUID(int=1)), "note")
    text = "# Party for Mila\n\n- Mila: shoes 34\n1. Mila sings.\n- [ ] Ask Mila\n"
    texts = [SourceText(text, source, datetime(2026, 5, 4, tzinfo=UTC))]
    statements = [statement for _, statement in find_statements_about(texts, ["Mila"])]
    assert statements == ["Mila: shoes 34", "Mila sings.", "Ask Mila"]
