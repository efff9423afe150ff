"""Sample documents, written by the libraries that people use for them."""

from __future__ import annotations

import email
import email.policy
import gzip
import io
import wave
import zipfile
import zlib
from datetime import date, datetime
from email.message import EmailMessage
from pathlib import Path

import docx
import fpdf
import openpyxl
import pptx
import pypdfium2
import xlwt
from aspose.email_foss.msg import MapiMessage
from docx.oxml import parse_xml
from openpyxl.comments import Comment
from PIL import Image

from rem.ingest.models import FetchedFile

SENTENCES = [f"Sentence number {number} of the report names the word unique{number}word." for number in range(120)]
"""More than one page of them."""
ENGLISH = (
    "The harbour office opens at seven. Ships that arrive before that hour wait at the outer pier, and their captains "
    "sign the register with the night guard. Invoice 4711 of 12.05.2024 amounts to 1,250.75 EUR."
)
GERMAN = (
    "Größere Schiffe müssen über Nacht draußen ankern. Frau Müller prüft täglich die Bücher, während der Zöllner "
    "Jörg Weiß heißen Kaffee für alle Gäste kocht. Äpfel, Öl und Übersee-Güter bleiben zollfrei."
)

_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_SPACES = (
    f'xmlns:r="{_RELATIONS}" xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" xmlns:v="urn:schemas-microsoft-com:vml" '
    'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape"'
)
_OPF = """<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="i">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The book</dc:title>
<dc:identifier id="i">1</dc:identifier><dc:language>en</dc:language></metadata>
<manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest>
<spine><itemref idref="a"/></spine></package>"""
_CONTAINER = """<?xml version="1.0"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="c.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""
_ODT = """<?xml version="1.0"?><office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" office:version="1.2"><office:body><office:text>
<text:h text:outline-level="1">Open heading</text:h>
<text:p>An open paragraph, with <text:span>a span</text:span> in it.</text:p>
</office:text></office:body></office:document-content>"""


def file(name: str, data: bytes | str, mime_type: str | None = None, uri: str | None = None) -> FetchedFile:
    """A file as if it had been fetched."""
    content = data.encode() if isinstance(data, str) else data
    return FetchedFile(name, uri or f"file:///in/{name}", content, mime_type)


def pdf(sentences: list[str], *, user_password: str | None = None, owner_password: str | None = None) -> bytes:
    """A PDF of several pages, by fpdf2."""
    paper = fpdf.FPDF()
    paper.set_title("The report")
    paper.set_author("Sarah")
    if owner_password:
        paper.set_encryption(owner_password=owner_password, user_password=user_password or "")
    paper.add_page()
    paper.set_font("helvetica", size=12)
    for sentence in sentences:
        paper.multi_cell(0, 8, sentence, new_x="LMARGIN", new_y="NEXT")
    return bytes(paper.output())


def form() -> bytes:
    """A PDF with a field that was filled in, and a note."""
    return _plain_pdf(
        b"BT /F1 12 Tf 100 100 Td (Your name:) Tj ET\n",
        catalog="/AcroForm<</Fields[5 0 R]>>",
        page="/Annots[5 0 R 6 0 R]",
        objects="5 0 obj<</Type/Annot/Subtype/Widget/FT/Tx/T(name)/V(Alice Example)/Rect[9 9 99 19]/P 3 0 R>>endobj\n"
        "6 0 obj<</Type/Annot/Subtype/Text/Contents(A note stuck on the page)/Rect[9 9 19 19]/P 3 0 R>>endobj\n",
    )


def page(*paragraphs: str) -> Image.Image:
    """The picture of a printed page, as a scanner sees it: laid out by fpdf2, printed by PDFium."""
    paper = fpdf.FPDF()
    paper.add_page()
    paper.set_font("helvetica", size=11)
    for paragraph in paragraphs:
        paper.multi_cell(0, 6, paragraph, new_x="LMARGIN", new_y="NEXT")
        paper.ln(6)
    printed: Image.Image = pypdfium2.PdfDocument(bytes(paper.output()))[0].render(scale=200 / 72).to_pil()
    return printed.convert("RGB")


def saved(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    """A picture as a file, by Pillow."""
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


def scans(*sheets: Image.Image | str, stamp: str = "") -> bytes:
    """A PDF of pictures of pages, with a stamp on each, and of pages of text."""
    paper = fpdf.FPDF()
    paper.set_font("helvetica", size=11)
    for sheet in sheets:
        paper.add_page()
        if isinstance(sheet, str):
            paper.multi_cell(0, 6, sheet)
            continue
        paper.image(sheet, x=0, y=0, w=210)
        paper.set_y(250)
        paper.multi_cell(0, 6, stamp)
    return bytes(paper.output())


def word() -> bytes:
    """A DOCX with all that text can hide in, by python-docx."""
    document = docx.Document()
    document.core_properties.title = "The plan"
    document.core_properties.author = "Sarah"
    document.add_heading("First part", 1)
    paragraph = document.add_paragraph("Grüße aus Köln: 1 < 2 & 3 * 4, see `code` and file_name_here [brackets].")
    document.add_paragraph("A point in a list", style="List Bullet")
    document.add_heading("Second part", 2)
    for sentence in SENTENCES[:20]:
        document.add_paragraph(sentence)
    table = document.add_table(2, 2)
    for row in range(2):
        for column in range(2):
            table.cell(row, column).text = f"cell {row} {column}"
    document.add_comment(paragraph.runs, text="A comment on the side", author="Tom", initials="T")
    document.sections[0].header.paragraphs[0].text = "Running head of the plan"
    document.sections[0].footer.paragraphs[0].text = "Running foot of the plan"
    return _saved(document)


def linked_word() -> bytes:
    """A DOCX with a link, a comment amid a sentence, a text box and a table in a table."""
    document = docx.Document()
    paragraph = document.add_paragraph("Please see ")
    link = document.part.relate_to("https://example.com/a_b", f"{_RELATIONS}/hyperlink", is_external=True)
    paragraph._p.append(parse_xml(f'<w:hyperlink {_SPACES} r:id="{link}"><w:r><w:t>the site</w:t></w:r></w:hyperlink>'))
    paragraph.add_run(" for more, said ")
    paragraph.add_run("bold").bold = True
    paragraph.add_run(" Tom.")
    paragraph = document.add_paragraph("Commented ")
    document.add_comment(paragraph.add_run("middle"), text="A remark", author="Tom", initials="T")
    paragraph.add_run(" end of it.")
    box = "<w:txbxContent><w:p><w:r><w:t>Text in a box</w:t></w:r></w:p></w:txbxContent>"
    document.add_paragraph("Box: ")._p.append(
        parse_xml(
            f"<w:r {_SPACES}><mc:AlternateContent><mc:Choice Requires='wps'><w:drawing><wps:txbx>{box}</wps:txbx>"
            f"</w:drawing></mc:Choice><mc:Fallback><w:pict><v:textbox>{box}</v:textbox></w:pict></mc:Fallback>"
            "</mc:AlternateContent></w:r>"
        )
    )
    cell = document.add_table(1, 1).cell(0, 0)
    cell.add_table(1, 1).cell(0, 0).text = "inner cell"
    return _saved(document)


def long_word(paragraphs: int) -> bytes:
    """A DOCX of very many paragraphs and nothing else."""
    body = "".join(f"<w:p><w:r><w:t>Paragraph {number}</w:t></w:r></w:p>" for number in range(paragraphs))
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    xml = f'<w:document xmlns:w="{space}"><w:body>{body}</w:body></w:document>'
    return packed({"[Content_Types].xml": "<Types/>", "word/document.xml": xml})


def sheet(rows: int = 3) -> bytes:
    """An XLSX with two sheets, by openpyxl."""
    book = openpyxl.Workbook()
    first = book.active
    first.title = "Budget"
    first.append(["Item", "Price", "When"])
    for number in range(rows):
        first.append([f"Thing {number}, blue", number + 0.5, date(2024, 5, 1)])
    first.append(["Two\nlines", None, datetime(2024, 5, 1, 10, 30)])
    first["A2"].comment = Comment("A remark on a cell", "Tom")
    second = book.create_sheet("Second sheet")
    second["C5"] = "A lonely cell"
    return _saved(book)


def old_sheet(rows: int = 3) -> bytes:
    """An XLS with two sheets, by xlwt."""
    book = xlwt.Workbook()
    first = book.add_sheet("Budget")
    day = xlwt.easyxf(num_format_str="YYYY-MM-DD")
    for column, name in enumerate(["Item", "Price", "When"]):
        first.write(0, column, name)
    for number in range(rows):
        first.write(number + 1, 0, f"Thing {number}, grün")
        first.write(number + 1, 1, number + 0.5)
        first.write(number + 1, 2, date(2024, 5, 1), day)
    book.add_sheet("Second sheet").write(4, 2, "A lonely cell")
    return _saved(book)


def slides() -> bytes:
    """A PPTX with a table and speaker's notes, by python-pptx."""
    presentation = pptx.Presentation()
    presentation.core_properties.author = presentation.core_properties.last_modified_by = "Sarah"
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "A title"
    slide.placeholders[1].text = "First point\nSecond point"
    slide.notes_slide.notes_text_frame.text = "What the speaker wants to say"
    slide = presentation.slides.add_slide(presentation.slide_layouts[5])
    slide.shapes.title.text = "Another title"
    table = slide.shapes.add_table(2, 2, 0, 0, 9_000_000, 900_000).table
    table.cell(0, 0).text = "Upper left"
    table.cell(1, 1).text = "Lower right"
    return _saved(presentation)


def mail() -> bytes:
    """An e-mail in two versions with three attachments, one of which cannot be read."""
    message = EmailMessage()
    message["From"] = "Tom Müller <tom@example.com>"
    message["To"] = "sarah@example.com"
    message["Subject"] = "Lunch on Friday"
    message["Date"] = "Mon, 06 May 2024 10:00:00 +0000"
    message.set_content("Shall we have lunch?\nI bring tea.\n")
    message.add_alternative("<p>Shall we have <b>lunch</b>?</p><p>I bring tea.</p>", subtype="html")
    message.add_attachment("Attached words", filename="note.txt")
    message.add_attachment(word(), maintype="application", subtype="octet-stream", filename="plan.docx")
    message.add_attachment(b"\0\1\2", maintype="application", subtype="octet-stream", filename="odd.bin")
    return message.as_bytes()


def outlook_mail() -> bytes:
    """The same e-mail as Outlook keeps it."""
    parsed = email.message_from_bytes(mail(), policy=email.policy.default)
    with MapiMessage.from_email_message(parsed) as message:
        return bytes(message.to_bytes())


def sample(name: str) -> bytes:
    """A document that no library for Python writes. See samples/README.md."""
    return gzip.decompress((Path(__file__).parent / "samples" / f"{name}.gz").read_bytes())


def epub() -> bytes:
    """An e-book of one chapter."""
    chapter = (
        '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>One</title></head>'
        "<body><h1>Chapter one</h1><p>Once upon a time.</p></body></html>"
    )
    return packed(
        {"mimetype": "application/epub+zip", "META-INF/container.xml": _CONTAINER, "c.opf": _OPF, "a.xhtml": chapter}
    )


def odt(manifest: str = "<manifest/>") -> bytes:
    """A text of LibreOffice's kind."""
    kind = "application/vnd.oasis.opendocument.text"
    return packed({"mimetype": kind, "content.xml": _ODT, "META-INF/manifest.xml": manifest})


def packed(parts: dict[str, str | bytes]) -> bytes:
    """A ZIP archive."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return data.getvalue()


def bomb(size: int) -> bytes:
    """A DOCX whose text is mostly zeros, a thousand times as large as the file."""
    data = io.BytesIO(word())
    with zipfile.ZipFile(data, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("word/media.bin", "w") as part:
        for _ in range(size // 1_000_000):
            part.write(bytes(1_000_000))
    return data.getvalue()


def locked_zip(data: bytes) -> bytes:
    """An archive whose entries say that they are encrypted."""
    changed = bytearray(data)
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = changed.find(mark)
        while place >= 0:
            changed[place + offset] |= 1
            place = changed.find(mark, place + 4)
    return bytes(changed)


def slow_pdf() -> bytes:
    """A PDF over which the parser sits for seconds: very many words, at random on one page."""
    place = 7
    words = []
    for number in range(30_000):
        place = place * 1103515245 + 12345 & 0x7FFFFFFF
        words.append(f"BT /F1 6 Tf {place % 491} {place // 491 % 691} Td (w{number}x{place:x}) Tj ET\n")
    return _plain_pdf("".join(words).encode())


def cyclic_pdf(kids: str) -> bytes:
    """A PDF whose page tree has these parts. Part 2 is its root, 3 is a page, and 5 contains the root."""
    objects = "5 0 obj<</Type/Pages/Kids[2 0 R]/Count 1>>endobj\n"
    drawing = b"BT /F1 12 Tf 72 720 Td (Hello) Tj ET"
    return _plain_pdf(drawing, objects=objects).replace(b"/Kids[3 0 R]", f"/Kids[{kids}]".encode())


def _plain_pdf(drawing: bytes, catalog: str = "", page: str = "", objects: str = "") -> bytes:
    """A PDF of one page, written by hand."""
    body = zlib.compress(drawing)
    font = "<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
    head = (
        f"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R{catalog}>>endobj\n"
        "2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
        f"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources{font}{page}>>endobj\n"
        f"{objects}4 0 obj<</Length {len(body)}/Filter/FlateDecode>>stream\n"
    )
    return head.encode() + body + b"\nendstream endobj\ntrailer<</Root 1 0 R>>\nstartxref\n0\n%%EOF"


def sound() -> bytes:
    """A second of silence as WAV."""
    data = io.BytesIO()
    with wave.open(data, "wb") as recording:
        recording.setnchannels(1)
        recording.setsampwidth(2)
        recording.setframerate(16_000)
        recording.writeframes(b"\0\0" * 16_000)
    return data.getvalue()


def _saved(document: object) -> bytes:
    data = io.BytesIO()
    document.save(data)  # type: ignore[attr-defined]
    return data.getvalue()
