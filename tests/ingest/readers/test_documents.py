"""Documents of all formats are read completely, and broken ones are rejected with a clear message."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from rem.errors import FileUnreadableError
from rem.ingest.models import ParsedDocument
from rem.ingest.readers.dispatch import read_file
from rem.ingest.readers.mail import MAX_HEADER_CHARS, parse_mail
from rem.settings import Settings
from tests.ingest import sample_files
from tests.ingest.sample_files import file

pytestmark = pytest.mark.slow

_SETTINGS = Settings()


async def read_sample(name: str, data: bytes) -> ParsedDocument:
    return await read_file(file(name, data), _SETTINGS)


def flat(text: str) -> str:
    """Lines of a page are no lines of a text."""
    return re.sub(r"\s+", " ", text)


async def test_pdf_keeps_every_sentence_of_every_page() -> None:
    document = await read_sample("report.pdf", sample_files.pdf(sample_files.SENTENCES))
    text = flat(document.text)
    assert [sentence for sentence in sample_files.SENTENCES if sentence not in text] == []
    assert (document.title, document.mime_type, document.format) == ("The report", "application/pdf", "markdown")
    assert document.metadata["authors"] == ["Sarah"]
    assert document.metadata["pages"] > 1


async def test_pdf_form_keeps_field_values_and_annotations() -> None:
    document = await read_sample("form.pdf", sample_files.form())
    for text in ("Your name:", "Alice Example", "A note stuck on the page"):
        assert text in document.text


async def test_docx_keeps_text_of_all_parts() -> None:
    document = await read_sample("plan.docx", sample_files.word())
    for text in (
        "# First part",
        "Grüße aus Köln: 1 < 2 & 3 * 4, see `code` and file_name_here [brackets].",
        "- A point in a list",
        "## Second part",
        *sample_files.SENTENCES[:20],
        *(f"cell {row} {column}" for row in range(2) for column in range(2)),
        "A comment on the side",
        "Running head of the plan",
        "Running foot of the plan",
    ):
        assert text in document.text, text
    assert document.title == "The plan"
    assert document.metadata["authors"] == ["Sarah"]


async def test_docx_text_is_not_duplicated() -> None:
    """Links, marks of comments and pieces in bold stand between the words, and are no reason to repeat them."""
    document = await read_sample("linked.docx", sample_files.linked_word())
    assert document.text.count("for more, said") == 1
    assert document.text.count("end of it") == 1
    assert document.text.count("Text in a box") == 1
    assert "inner cell" in document.text


async def test_xlsx_keeps_every_cell_of_every_sheet() -> None:
    document = await read_sample("budget.xlsx", sample_files.sheet(rows=50))
    lines = document.text.splitlines()
    assert lines[0] == "## Budget"
    assert "Item; Price; When" in lines
    for number in range(50):
        assert f"Item: Thing {number}, blue; Price: {number}.5; When: 2024-05-01" in lines
    assert "Item: Two lines; When: 2024-05-01 10:30:00" in lines
    assert "## Second sheet" in lines
    assert "A lonely cell" in lines
    assert "A remark on a cell" in document.text


async def test_large_xlsx_is_not_truncated() -> None:
    document = await read_sample("large.xlsx", sample_files.sheet(rows=40_000))
    assert document.text.count("Item: Thing ") == 40_000


async def test_pptx_keeps_tables_and_notes() -> None:
    document = await read_sample("deck.pptx", sample_files.slides())
    wanted = ["A title", "First point", "Second point", "What the speaker wants to say"]
    wanted += ["Another title", "Upper left", "Lower right"]
    places = [document.text.find(text) for text in wanted]
    assert -1 not in places
    assert places == sorted(places)


async def test_email_keeps_its_attachments() -> None:
    document = await read_sample("mail.eml", sample_files.mail())
    for text in (
        "From: Tom Müller <tom@example.com>",
        "To: sarah@example.com",
        "Subject: Lunch on Friday",
        "Shall we have lunch?\nI bring tea.",
        "## note.txt\n\nAttached words",
        "## plan.docx",
        sample_files.SENTENCES[7],
        "## odd.bin\n\n(not read: odd.bin is not a text",
    ):
        assert text in document.text, text
    assert document.text.count("I bring tea.") == 1
    assert (document.title, document.mime_type) == ("Lunch on Friday", "message/rfc822")
    assert [item["name"] for item in document.metadata["attachments"]] == ["note.txt", "plan.docx", "odd.bin"]


async def test_html_email_and_attached_email_are_read() -> None:
    from email.message import EmailMessage

    inner = EmailMessage()
    inner["Subject"] = "The inner one"
    inner.set_content("<p>Only <b>in HTML</b></p>", subtype="html")
    outer = EmailMessage()
    outer["Subject"] = "Fwd"
    outer.set_content("See below")
    outer.add_attachment(inner)
    document = await read_sample("mail.eml", outer.as_bytes())
    assert "See below" in document.text
    assert "Only in HTML" in document.text
    assert "The inner one" in document.text


@pytest.mark.parametrize(
    ("name", "data", "texts", "kind"),
    [
        ("a.epub", sample_files.epub(), ["# Chapter one", "Once upon a time."], "application/epub+zip"),
        (
            "a.odt",
            sample_files.odt(),
            ["# Open heading", "An open paragraph, with a span in it."],
            "application/vnd.oasis.opendocument.text",
        ),
        (
            "a.rtf",
            rb"{\rtf1\ansi Hello from \b RTF\b0 .\par Caf\'e9.}",
            ["Hello from", "RTF", "Café."],
            "application/rtf",
        ),
    ],
)
async def test_other_document_formats_are_read(name: str, data: bytes, texts: list[str], kind: str) -> None:
    document = await read_sample(name, data)
    assert document.mime_type == kind
    for text in texts:
        assert text in document.text


@pytest.mark.parametrize("name", ["plan.docx", "x.bin", "plan"])
async def test_document_is_recognised_by_content(name: str) -> None:
    assert sample_files.SENTENCES[3] in (await read_sample(name, sample_files.word())).text


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.pdf", sample_files.pdf(["Secret."], user_password="u", owner_password="o")),
        ("a.docx", sample_files.locked_zip(sample_files.word())),
        ("a.odt", sample_files.odt("<manifest><encryption-data/></manifest>")),
        (
            "a.docx",
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500) + "EncryptedPackage".encode("utf-16-le") + bytes(500),
        ),
    ],
)
async def test_encrypted_document_is_rejected_with_advice(name: str, data: bytes) -> None:
    with pytest.raises(FileUnreadableError, match=rf"^{name} is encrypted: remove the password"):
        await read_sample(name, data)


async def test_pdf_with_owner_password_only_is_read() -> None:
    document = await read_sample("a.pdf", sample_files.pdf(["Not so secret."], owner_password="o"))
    assert "Not so secret." in document.text


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.pdf", sample_files.pdf(sample_files.SENTENCES)[:2000]),
        ("a.pdf", b"%PDF-1.7\n" + b"garbage " * 100 + b"\nstartxref\n0\n%%EOF"),
        ("a.docx", sample_files.word()[:10_000]),
        ("a.docx", sample_files.packed({"[Content_Types].xml": "<Types/>", "word/document.xml": "<not closed"})),
        ("a.xlsx", sample_files.packed({"[Content_Types].xml": "<Types/>", "xl/workbook.xml": "no xml"})),
        ("a.pptx", sample_files.packed({"[Content_Types].xml": "<Types/>", "ppt/presentation.xml": ""})),
        ("a.epub", sample_files.packed({"mimetype": "application/epub+zip"})),
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2000)),
        ("a.msg", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"x" * 2000),
    ],
)
async def test_malformed_document_is_rejected(name: str, data: bytes) -> None:
    with pytest.raises(FileUnreadableError, match=rf"^{name} (cannot be read as [A-Z]+: |has no text in it)") as error:
        await read_sample(name, data)
    assert len(str(error.value)) < 500


async def test_damaged_part_of_a_document_is_detected() -> None:
    data = bytearray(sample_files.word())
    place = data.find(b"word/document.xml") + 200
    data[place : place + 50] = bytes(50)
    with pytest.raises(FileUnreadableError, match="cannot be read as DOCX"):
        await read_sample("a.docx", bytes(data))


def test_long_header_is_read_in_part() -> None:
    """A list of very many recipients takes quadratic time."""
    data = b"Subject: All\nTo: " + b"a@example.com, " * 20_000 + b"\n\nHello.\n"
    mail = parse_mail(data)
    assert (mail.headers["Subject"], mail.texts) == ("All", ["Hello.\n"])
    assert 0 < len(mail.headers["To"]) <= MAX_HEADER_CHARS


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"--b\nContent-Type: text/plain\n\nhi\n" * 20_000, "it has more than 10,000 parts"),
        (
            b"--b\n"
            + b"".join(b'Content-Type: multipart/mixed; boundary="%d"\n\n--%d\n' % (n, n) for n in range(5000)),
            "its parts are nested too deeply",
        ),
    ],
)
async def test_mail_with_too_many_or_too_deep_parts_is_rejected(body: bytes, reason: str) -> None:
    data = b'Subject: All\nContent-Type: multipart/mixed; boundary="b"\n\n' + body
    with pytest.raises(FileUnreadableError, match=reason):
        await read_sample("all.eml", data)


async def test_attachments_have_the_time_of_one_file() -> None:
    part = b"--b\nContent-Type: message/rfc822\n\nFrom: a@example.com\nSubject: x\n\nHello.\n"
    data = b'Subject: All\nContent-Type: multipart/mixed; boundary="b"\n\n' + part * 200 + b"--b--\n"
    settings = _SETTINGS.model_copy(update={"ingest": _SETTINGS.ingest.model_copy(update={"timeout_seconds": 3.0})})
    document = await read_file(file("all.eml", data), settings)
    assert "(not read: the time for the attachments of this e-mail was over (INGEST__TIMEOUT_SECONDS))" in document.text
    assert len(document.metadata["attachments"]) == 200


async def test_text_called_eml_is_rejected() -> None:
    with pytest.raises(FileUnreadableError, match="cannot be read as e-mail"):
        await read_sample("a.eml", b"just some words\n")


async def test_xls_keeps_every_cell_of_every_sheet() -> None:
    document = await read_sample("budget.xls", sample_files.old_sheet(rows=50))
    lines = document.text.splitlines()
    assert (lines[0], document.mime_type) == ("## Budget", "application/vnd.ms-excel")
    for number in range(50):
        assert f"Item: Thing {number}, grün; Price: {number}.5; When: 2024-05-01" in lines
    assert lines[-3:] == ["## Second sheet", "", "A lonely cell"]


async def test_doc_keeps_everything_except_page_headers() -> None:
    document = await read_sample("plan.doc", sample_files.sample("plan.doc"))
    text = flat(document.text)
    for part in (
        "# First part",
        "Grüße aus Köln: 1 < 2 & 3 * 4, see `code` and file_name_here [brackets].",
        "- A point in a list",
        "## Second part",
        *sample_files.SENTENCES[:20],
        *(f"cell {row} {column}" for row in range(2) for column in range(2)),
        "A comment on the side",
    ):
        assert part in text, part
    assert (document.title, document.mime_type) == ("The plan", "application/msword")
    # If this fails, say in docs/ingestion.md that they are read.
    assert "Running" not in text


@pytest.mark.parametrize("name", ["deck.ppt", "deck.odp"])
async def test_odp_and_ppt_keep_tables_and_notes(name: str) -> None:
    document = await read_sample(name, sample_files.sample(name))
    for text in (
        *("A title", "First point", "Second point", "What the speaker wants to say"),
        *("Another title", "Upper left", "Lower right"),
    ):
        assert text in document.text, text


async def test_ods_keeps_every_cell_of_every_sheet() -> None:
    lines = (await read_sample("budget.ods", sample_files.sample("budget.ods"))).text.splitlines()
    for number in range(20):
        assert f"Item: Thing {number}, blue; Price: {number}.5; When: 2024-05-01" in lines
    assert "Item: Two lines; When: 2024-05-01T10:30:00" in lines
    assert lines[-3:] == ["## Second sheet", "", "A lonely cell"]


@pytest.mark.parametrize("name", ["deck", "deck.bin"])
async def test_legacy_document_is_recognised_by_content(name: str) -> None:
    assert "Second point" in (await read_sample(name, sample_files.sample("deck.ppt"))).text


async def test_outlook_message_keeps_its_attachments() -> None:
    document = await read_sample("mail.msg", sample_files.outlook_mail())
    for text in (
        "Tom Müller <tom@example.com>",
        "sarah@example.com",
        "Lunch on Friday",
        "Shall we have **lunch**?",
        "I bring tea.",
        "## note.txt\n\nAttached words",
        "## plan.docx",
        *sample_files.SENTENCES[:20],
        "cell 1 1",
        "A comment on the side",
        "odd.bin",
    ):
        assert text in document.text, text
    assert (document.title, document.mime_type) == ("Lunch on Friday", "application/vnd.ms-outlook")
    assert document.written_at == datetime(2024, 5, 6, 10, tzinfo=UTC)
