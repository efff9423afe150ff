"""What texts give evidence of: addresses, signatures, introductions, handles; and that no text takes long to read."""

from __future__ import annotations

import time

import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.dreaming.entities.candidates import Candidate, build_candidates
from rem.dreaming.entities.dream import EntitiesDream
from rem.dreaming.entities.emails import address_fits_name, find_mailboxes, find_signatures
from rem.dreaming.entities.evidence import StatedRelation, find_beginnings, normalize_rel_type
from rem.dreaming.entities.extraction import extract_evidence, find_possible_names
from rem.dreaming.entities.introductions import find_employments
from rem.dreaming.entities.name_parsing import get_sentence_at, parse_name_after, parse_name_before
from rem.dreaming.text.masking import MAX_TEXT_CHARS, mask_code_and_links
from tests.dreaming.entities.sample_sessions import entities, talk
from tests.dreaming.sample_claims import night_for


def found_in(*texts: str, is_own_words: bool = True) -> dict[str, Candidate]:
    """What a conversation of these texts names."""
    said = [mask_code_and_links(text) for text in texts]
    evidence = [
        one for place, text in enumerate(said) for one in extract_evidence(text, place, is_own_words=is_own_words)
    ]
    return {one.name: one for one in build_candidates(evidence, said)}


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
def test_who_an_address_belongs_to(text: str, name: str | None) -> None:
    sure = [one.name for one in found_in(text).values() if one.confidence >= 0.75]
    assert sure == ([name] if name else [])


@pytest.mark.parametrize(
    "local", ["s.chen", "schen", "sarah.chen", "sarah_chen", "chen.sarah", "sarah", "chens", "sarahc"]
)
def test_addresses_that_fit_a_name(local: str) -> None:
    assert address_fits_name(local, ("sarah", "chen"))


@pytest.mark.parametrize("local", ["m.chen", "sarah.miller", "info", "s", "sc", "ahchen", ""])
def test_addresses_that_do_not(local: str) -> None:
    assert not address_fits_name(local, ("sarah", "chen"))


def test_role_addresses_and_free_providers_are_nobody_and_no_employer() -> None:
    assert found_in("info@acme.com support.team@acme.com no-reply@acme.com 12345@acme.com") == {}
    assert set(found_in("lara.novak@gmail.com", "lara.novak@gmail.com")) == {"Lara Novak"}


def test_an_organisation_stands_behind_several_addresses_of_a_domain() -> None:
    one = found_in("ann.lee@borealis-paper.co.uk")["Borealis Paper"]
    two = found_in("ann.lee@borealis-paper.co.uk and bo.yang@borealis-paper.co.uk")["Borealis Paper"]
    assert one.confidence < 0.75 <= two.confidence
    assert two.keys == {"borealis-paper.co.uk"}


def test_a_signature_tells_name_position_and_organisation() -> None:
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
def test_introductions(text: str, name: str) -> None:
    assert list(found_in(text)) == [name]


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
def test_no_evidence(text: str) -> None:
    assert found_in(text) == {}


def test_in_a_document_first_names_are_nobody() -> None:
    text = "My brother Edmund and Mr. Bennet agreed. My colleague Ann Lee came."
    assert list(found_in(text, is_own_words=False)) == ["Ann Lee"]


def test_who_works_where_and_since_when() -> None:
    (one,) = find_employments("Sarah Chen <s@acme.com> works at Acme Inc today", 3)
    assert one == StatedRelation(("Sarah", "Chen"), "works_at", ("Acme",), 3)
    acme, globex, back = (
        StatedRelation(("Sarah",), "works_at", (name,), place) for place, name in enumerate(("A", "G", "A"))
    )
    assert find_beginnings([acme, back, globex]) == [acme, globex, back]
    assert find_beginnings([acme, StatedRelation(acme.src, acme.rel_type, acme.dst, 5)]) == [acme]


def test_relations_have_readable_names() -> None:
    assert normalize_rel_type("Works For") == "works_at"
    assert normalize_rel_type("depends-on") == "depends_on"
    for nonsense in ("", "DROP TABLE x;", "a" * 300, "1st", "пишет", "works_at; --"):
        assert normalize_rel_type(nonsense) is None


def test_possible_names_are_whole_names() -> None:
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
def test_no_text_takes_long(text: str) -> None:
    started = time.perf_counter()
    plain = mask_code_and_links(text)
    assert len(plain) <= MAX_TEXT_CHARS
    build_candidates(extract_evidence(plain, 0, speaker="A B"), [plain])
    list(find_employments(plain, 0))
    find_possible_names(plain)
    list(find_mailboxes(plain))
    parse_name_after(plain, 0)
    parse_name_before(plain, len(plain))
    get_sentence_at(plain, len(plain) // 2)
    assert time.perf_counter() - started < 5


async def test_a_megabyte_in_one_message_is_no_trouble(rem: Rem, alice: Store) -> None:
    words = "The Quick Brown Fox met my colleague Amara Diallo in Room Seven and said so. "
    await talk(rem, alice, words * 13_000, words)
    started = time.perf_counter()
    # Without the indexer, whose time is that of the embedder.
    await EntitiesDream().derive(await night_for(rem, alice))
    assert time.perf_counter() - started < 10
    assert await entities(alice) == ["amara-diallo"]
