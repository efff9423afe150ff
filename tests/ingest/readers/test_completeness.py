"""The visible text of a file is read exactly once, with word boundaries and headings."""

from __future__ import annotations

from datetime import UTC, datetime
from email.message import EmailMessage
from io import BytesIO

import docx
import openpyxl

from rem.app import Rem
from rem.db.store import Store
from rem.ingest.chunks import chunk_document
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers.dispatch import read_file
from rem.ingest.readers.html import parse_html
from rem.models import Resource
from rem.sessions.tokens import count_tokens
from rem.settings import Settings
from tests.ingest.sample_files import file


def letter(subject: str = "Contract") -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "a@example.com", "b@example.com", subject
    mail["Date"] = "Mon, 01 Jan 2024 10:00:00 +0200"
    return mail


async def test_attachments_in_every_mail_alternative_are_read(rem: Rem, alice: Store) -> None:
    # As Apple's Mail writes it: the plain text, or the rich one with what is attached.
    rich = EmailMessage()
    rich.set_content("<p>Please sign.</p>", subtype="html")
    rich.add_attachment("The rent is 500 a month.", filename="contract.txt")
    mail = letter()
    mail.set_content("Please sign the contract.")
    mail.make_alternative()
    mail.attach(rich)
    document = await read_file(file("mail.eml", mail.as_bytes()), Settings())
    assert "Please sign the contract." in document.text
    assert document.text.count("Please sign") == 1
    assert "## contract.txt\n\nThe rent is 500 a month." in document.text
    assert document.written_at == datetime(2024, 1, 1, 8, tzinfo=UTC)
    await rem.for_user(alice.scope).ingester().ingest(file("mail.eml", mail.as_bytes()))
    assert {row.timestamp for row in await alice.find(Resource)} == {document.written_at}


async def test_mail_with_too_many_parts_mentions_skipped_parts() -> None:
    mail = letter("Many")
    mail.set_content("See below.")
    for number in range(210):
        mail.add_attachment(f"Part {number}", filename=f"{number}.txt")
    document = await read_file(file("mail.eml", mail.as_bytes()), Settings())
    assert "(11 more parts of this e-mail were not read.)" in document.text
    assert document.metadata["parts_not_read"] == 11


async def test_paragraph_with_special_characters_appears_once() -> None:
    word = docx.Document()
    word.add_paragraph("Write <b>BOLD</b> & mean &amp; it.")
    stream = BytesIO()
    word.save(stream)
    document = await read_file(file("a.docx", stream.getvalue()), Settings())
    assert document.text.count("BOLD") == 1


async def test_uncalculated_formula_is_in_the_text() -> None:
    book = openpyxl.Workbook()
    book.active.title = "Budget"
    for row in (["item", "euro"], ["rent", 500], ["food", 300], ["sum", "=SUM(B2:B3)"]):
        book.active.append(row)
    stream = BytesIO()
    book.save(stream)
    document = await read_file(file("budget.xlsx", stream.getvalue()), Settings())
    assert "Formulas of Budget: B4 =SUM(B2:B3)" in document.text


def test_words_of_adjacent_tags_stay_separate() -> None:
    page = parse_html(
        "<p><svg><text>Axis</text><text>Title</text></svg><math><mi>x</mi><mo>=</mo><mn>2</mn></math>"
        "<button>Buy</button><button>Sell</button><ruby>漢<rt>kan</rt></ruby></p>"
    )
    assert page.text == "Axis Title x = 2 Buy Sell 漢 kan\n"


def test_contact_address_of_a_link_is_kept() -> None:
    page = parse_html(
        '<p><a href="mailto:ann@example.com?subject=Hi">Write to Ann</a>, <a href="tel:+49301">call</a>, '
        '<a href="mailto:bo@example.com">bo@example.com</a>, <a href="/x">see</a></p>'
    )
    assert page.text == "Write to Ann (ann@example.com), call (+49301), bo@example.com, see\n"


def test_heading_stays_with_the_text_after_it() -> None:
    rows = "\n".join(f"item: number {number}; euro: {number * 7}" for number in range(60))
    text = f"## Budget\n\n{rows}\n\n## Next\n\nDone.\n"
    chunks = chunk_document(ParsedDocument(text, "markdown", "text/markdown"), 64)
    assert chunks[0].text.startswith("## Budget\n\nitem: number 0;")
    assert all(count_tokens(chunk.text) <= 64 for chunk in chunks)
    assert "".join("".join(chunk.text.split()) for chunk in chunks) == "".join(text.split())
    assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)


def test_front_matter_stays_with_the_text_after_it() -> None:
    text = "---\ntitle: A\n---\n# A\n\n## One\n\nText.\n\n## Two\n\nMore.\n"
    chunks = chunk_document(ParsedDocument(text, "markdown", "text/markdown"), 64)
    assert [(chunk.text, chunk.heading_path) for chunk in chunks] == [
        ("---\ntitle: A\n---\n# A\n\n## One\n\nText.", ("A", "One")),
        ("## Two\n\nMore.", ("A", "Two")),
    ]


async def test_changed_chunk_resets_the_dream_progress_of_its_file(rem: Rem, alice: Store) -> None:
    async def is_seen() -> bool:
        async with rem.database.connection() as connection:
            return bool(
                await connection.fetchval("SELECT count(*) FROM rem.dream_progress WHERE source_type = 'files'")
            )

    text = b"# Plan\n\nThe harbour gets twelve berths.\n\n# Cost\n\nEach berth costs 900 euro.\n"
    await rem.for_user(alice.scope).ingester().ingest(FetchedFile("plan.md", "file:///plan.md", text))
    piece = (await alice.find(Resource, order_by="ordinal"))[0]
    await alice.delete(piece)
    await rem.dreamer().dream(alice.scope, ["moments"])
    assert await is_seen()
    await alice.restore(Resource, piece.id)
    assert not await is_seen()
    await rem.dreamer().dream(alice.scope, ["moments"])
    assert await is_seen()
    await alice.erase(piece)
    assert not await is_seen()
