"""OCR: the text in photographs, scans and images inside documents is read."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import docx
import pptx
import pytest
from PIL import Image, ImageOps

from rem.errors import FileUnreadableError
from rem.ingest.models import ParsedDocument
from rem.ingest.readers.dispatch import read_file
from rem.ingest.readers.documents import find_ocr_data
from rem.settings import IngestSettings, Settings
from tests.ingest import sample_files
from tests.ingest.sample_files import ENGLISH, GERMAN, file

pytestmark = pytest.mark.slow

_NATIVE = "A page of text about lighthouses and those who keep them. " * 8


async def read_sample(name: str, data: bytes, **settings: float) -> ParsedDocument:
    return await read_file(file(name, data), Settings(ingest=IngestSettings(**settings)))


def missing(text: str, *wanted: str) -> list[str]:
    words = text.split()
    return [word for part in wanted for word in part.split() if word not in words]


@pytest.fixture(scope="module")
def page() -> Image.Image:
    return sample_files.page(ENGLISH, GERMAN)


async def test_every_word_of_an_image_is_read(page: Image.Image) -> None:
    document = await read_sample("a.png", sample_files.saved(page))
    assert missing(document.text, ENGLISH, GERMAN) == []
    # Lines of a text are neither a table nor said twice.
    assert (document.text.count("|"), document.text.count("harbour")) == (0, 1)
    assert (document.mime_type, document.metadata) == ("image/png", {"ocr": True})


@pytest.mark.parametrize("kind", ["JPEG", "GIF", "WEBP", "BMP", "AVIF"])
async def test_other_image_formats_are_read(kind: str) -> None:
    small = sample_files.page("Wet paint on the benches").crop((0, 0, 800, 200))
    document = await read_sample("picture", sample_files.saved(small, kind))
    assert "Wet paint on the benches" in document.text
    assert document.mime_type == f"image/{kind.lower()}"


async def test_every_page_of_a_tiff_is_read(page: Image.Image) -> None:
    second = sample_files.page("The second page speaks of lighthouses only.").convert("1")
    data = sample_files.saved(page, "TIFF", save_all=True, append_images=[second])
    document = await read_sample("scan.tiff", data)
    assert missing(document.text, ENGLISH, GERMAN, "The second page speaks of lighthouses only.") == []


@pytest.mark.parametrize("degrees", [90, 180])
async def test_rotated_page_is_turned(degrees: int, page: Image.Image) -> None:
    document = await read_sample("a.png", sample_files.saved(page.rotate(degrees, expand=True)))
    assert missing(document.text, ENGLISH, GERMAN) == []


async def test_exif_orientation_is_applied() -> None:
    """With too few words to find out which way it lies."""
    photograph = sample_files.page("Wet paint").crop((0, 0, 400, 200)).rotate(180)
    exif = photograph.getexif()
    exif[0x0112] = 3
    assert "Wet paint" in (await read_sample("a.jpg", sample_files.saved(photograph, "JPEG", exif=exif))).text


@pytest.mark.parametrize("shade", [0, 255])
async def test_text_on_transparent_background_is_read(shade: int, page: Image.Image) -> None:
    letters = Image.new("RGBA", page.size, (shade, shade, shade, 0))
    letters.paste((shade, shade, shade, 255), mask=ImageOps.invert(page.convert("L")))
    assert missing((await read_sample("a.png", sample_files.saved(letters))).text, ENGLISH, GERMAN) == []


async def test_long_screenshot_is_read_to_its_end() -> None:
    """The picture of a whole web page. Made smaller as a whole, its letters would be gone."""
    lines = [f"Chapter {number} tells of {number * 7} ships." for number in range(100, 160)]
    strip = Image.new("L", (600, 7200), 255)
    for place in range(6):
        half = sample_files.page(*lines[10 * place : 10 * place + 10]).convert("L").resize((827, 1170))
        strip.paste(half, (0, 1200 * place))
    assert missing((await read_sample("a.png", sample_files.saved(strip))).text, *lines) == []


async def test_pdf_with_scan_and_text_pages_is_read_completely(page: Image.Image) -> None:
    document = await read_sample("scan.pdf", sample_files.scans(_NATIVE, page))
    assert missing(document.text, _NATIVE, ENGLISH, GERMAN) == []
    assert (document.metadata["pages"], document.metadata["ocr"]) == (2, True)


async def test_scan_with_stamp_is_read_by_ocr_and_keeps_the_stamp_exactly(page: Image.Image) -> None:
    stamp = "Received on 12.05.2024, key Xq7-lI1O0"
    assert (
        missing((await read_sample("scan.pdf", sample_files.scans(page, stamp=stamp))).text, stamp, ENGLISH, GERMAN)
        == []
    )


async def test_images_in_documents_are_read(page: Image.Image) -> None:
    picture = sample_files.saved(page)
    text = docx.Document()
    text.add_paragraph("Before the picture.")
    text.add_picture(io.BytesIO(picture), width=5_000_000)
    text.add_paragraph("After it.")
    read_text = (await read_sample("a.docx", _saved(text))).text
    assert missing(read_text, ENGLISH, GERMAN) == []
    assert read_text.index("Before the picture.") < read_text.index("harbour") < read_text.index("After it.")

    deck = pptx.Presentation()
    deck.slides.add_slide(deck.slide_layouts[6]).shapes.add_picture(io.BytesIO(picture), 0, 0)
    assert missing((await read_sample("a.pptx", _saved(deck))).text, ENGLISH, GERMAN) == []


async def test_document_with_too_many_images_keeps_its_text(page: Image.Image) -> None:
    text = docx.Document()
    text.add_paragraph("The text itself.")
    for number in range(15):
        text.add_picture(io.BytesIO(sample_files.saved(page.crop((0, 0, 1654, 700 + number)))), width=5_000_000)
    document = await read_sample("a.docx", _saved(text), timeout_seconds=5)
    assert document.text.startswith("The text itself.")
    assert document.text.endswith("there are too many for INGEST__TIMEOUT_SECONDS.)\n")
    assert document.metadata["pictures_not_read"] is True


async def test_scan_with_too_many_pages_fails_with_the_timeout(page: Image.Image) -> None:
    with pytest.raises(FileUnreadableError, match=r"could not be read within 3 s \(INGEST__TIMEOUT_SECONDS\)"):
        await read_sample("a.pdf", sample_files.scans("A cover.", *[page] * 20), timeout_seconds=3)


@pytest.mark.parametrize(
    ("name", "make_data", "message"),
    [
        ("a.png", lambda: sample_files.saved(Image.new("RGB", (200, 200), "white")), "has no text in it"),
        ("a.png", lambda: sample_files.saved(Image.new("LA", (200, 200))), "has no text in it"),
        (
            "a.png",
            lambda: sample_files.saved(Image.new("1", (20_000, 20_000))),
            "20,000 by 20,000 pixels.*make it smaller",
        ),
        (
            "a.png",
            lambda: sample_files.saved(sample_files.page(ENGLISH))[:3000],
            "cannot be read as an image: image file is truncated",
        ),
        (
            "a.jpg",
            lambda: b"\xff\xd8\xff" + b"rubbish" * 100,
            "cannot be read as an image: .* save it as PNG or JPEG",
        ),
        (
            "a.heic",
            lambda: b"\0\0\0\x18ftypheic" + bytes(100),
            "a HEIC image, which REM cannot read: convert it to JPEG",
        ),
    ],
)
async def test_unreadable_image_fails_with_a_clear_message(
    name: str, make_data: Callable[[], bytes], message: str
) -> None:
    with pytest.raises(FileUnreadableError, match=message):
        await read_sample(name, make_data())


def test_tessdata_prefix_selects_the_languages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = find_ocr_data()
    assert ours["languages"] == ["deu", "eng"]
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    assert find_ocr_data() == ours
    for name in ("eng", "fra", "osd"):
        (tmp_path / f"{name}.traineddata").touch()
    assert find_ocr_data() == {"tessdata": str(tmp_path), "languages": ["eng", "fra"]}


def _saved(document: object) -> bytes:
    data = io.BytesIO()
    document.save(data)  # type: ignore[attr-defined]
    return data.getvalue()
