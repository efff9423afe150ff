"""Readers of text formats lose nothing, invent nothing and reject binary files."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest

from rem.errors import FileTooLargeError, FileUnreadableError
from rem.ingest.models import ParsedDocument
from rem.ingest.readers.dispatch import read_file
from rem.settings import AudioSettings, IngestSettings, Settings
from tests.audio.fake_transcriber import Transcriber
from tests.ingest import sample_files
from tests.ingest.sample_files import file

_SETTINGS = Settings()
_ODD = "Grüße, Ёлка, 日本語, 👩‍👩‍👧, \t tabs  and  gaps \r\n\r\n\n mixed newlines \r and an end without one"


async def read_sample(
    name: str, data: bytes | str, mime_type: str | None = None, uri: str | None = None
) -> ParsedDocument:
    return await read_file(file(name, data, mime_type, uri), _SETTINGS)


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.py", "noending", "a.unknown", "README"])
async def test_text_is_returned_unchanged(name: str) -> None:
    assert (await read_sample(name, _ODD)).text == _ODD


@pytest.mark.parametrize(
    ("encoding", "noted"),
    [("utf-8", None), ("utf-8-sig", "utf-8-sig"), ("utf-16", "utf-16"), ("utf-32", "utf-32"), ("cp1252", "cp1252")],
)
async def test_common_encodings_are_decoded(encoding: str, noted: str | None) -> None:
    text = "Ein Brief über Öl – „so“ sagt man."
    document = await read_sample("a.txt", text.encode(encoding))
    assert document.text == text
    assert document.metadata.get("encoding") == noted


async def test_charset_declared_by_the_server_is_used() -> None:
    text = "Привет, мир"
    assert (await read_sample("a.txt", text.encode("koi8-r"), "text/plain; charset=koi8-r")).text == text
    page = f'<html><head><meta charset="windows-1251"></head><p>{text}</p></html>'
    assert (await read_sample("a.html", page.encode("cp1251"))).text == f"{text}\n"
    # An encoding that does not exist, or is none of texts, is passed over.
    for said in ("klingon", "zip", "rot13", "utf-16"):
        assert (await read_sample("a.txt", text, f"text/plain; charset={said}")).text == text


@pytest.mark.parametrize(
    "data",
    [b"text with \0 in it", bytes(range(256)) * 4, b"\x7fELF\x02\x01\x01\0\0\0", b"\xff\xfeA", b"MZ\x90\0\x03\0\0\0"],
)
async def test_binary_file_is_rejected(data: bytes) -> None:
    with pytest.raises(FileUnreadableError):
        await read_sample("a.txt", data)


@pytest.mark.parametrize("name", ["a.txt", "a.pdf", "a.docx", "a.json", "a.wav", "a.png"])
async def test_empty_file_is_rejected(name: str) -> None:
    with pytest.raises(FileUnreadableError, match="is empty"):
        await read_sample(name, b"")
    with pytest.raises(FileUnreadableError):
        await read_sample(name, b" \n\t ")


async def test_too_large_file_is_rejected() -> None:
    with pytest.raises(FileTooLargeError, match="INGEST__MAX_BYTES"):
        await read_file(file("a.txt", "x" * 2000), Settings(ingest=IngestSettings(max_bytes=1000)))


async def test_markdown_has_a_title_and_keeps_front_matter() -> None:
    text = "---\ntitle: The plan\ndate: 2024-05-01\ntags: [a, b]\n---\n\n# A heading\n\nText.\n"
    document = await read_sample("a.md", text)
    assert (document.text, document.format, document.mime_type) == (text, "markdown", "text/markdown")
    assert document.title == "The plan"
    assert document.metadata["front_matter"] == {"title": "The plan", "date": "2024-05-01", "tags": ["a", "b"]}


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# One\n\n## Two", "One"),
        ("Text first\n\n## Two ##\n", "Two"),
        ("```\n# no heading\n```\n\n# Heading", "Heading"),
        ("Underlined\n==========\n", "Underlined"),
        ("#tag is no heading", None),
        ("---\ntitle: [broken\n---\n# Heading\n", "Heading"),
        ("---\nno end of the front matter\n# Heading\n", "Heading"),
        ("just text", None),
    ],
)
async def test_markdown_title_is_the_first_heading(text: str, title: str | None) -> None:
    document = await read_sample("a.md", text)
    assert (document.title, document.text) == (title, text)


@pytest.mark.parametrize(
    "front",
    [
        "a: &a [x]\nb: *a",
        "!!python/object/apply:os.system ['true']",
        "a: " + "[" * 5000,
        "a: !!binary notbase64",
        "? [1]\n: 2",
        "a: 2024-99-99",
        "- a list",
        "a: 1:" + ":".join(["60"] * 50),
        "a: .nan\nb: .inf",
        'a: "\\ud800 and \\0"',
    ],
)
async def test_invalid_front_matter_is_ignored(front: str) -> None:
    text = f"---\n{front}\n---\nText."
    document = await read_sample("a.md", text)
    assert document.text == text
    json.dumps(document.metadata, allow_nan=False).encode()


async def test_code_is_read_by_language() -> None:
    for name, language in (("a.py", "python"), ("b.TSX", "typescript"), ("Makefile", "make"), ("src/x.rs", "rust")):
        document = await read_sample(name, "x = 1\n")
        assert (document.format, document.metadata["language"], document.text) == ("code", language, "x = 1\n")


_PAGE = """<!doctype html><html lang=en><head><title>The &amp; title</title><meta name=description content="About it">
<style>p { color: red }</style><script>var hidden = "<p>not me</p>"</script></head>
<body><nav><a href=/x>Home</a></nav><h1>Big <em>heading</em></h1>
<p>First&nbsp;paragraph with <a href="/y">a link</a>, 1 &lt; 2 and
a new line.<p>Second, never closed
<ul><li>one<li>two<ul><li>inner</ul></ul><ol start=3><li>third</li></ol>
<table><tr><th>Name<th>Age</tr><tr><td>Tom</td><td>7</td></tr></table>
<pre>  kept
   as is</pre><img src=x alt="A picture of tea"><dl><dt>Term<dd>Meaning</dl>
<template>not me</template><noscript>not me</noscript>
<form><label>Label</label><button>Press</button><select><option>One<option>Two</select><textarea>Area</textarea></form>
Loose text<br>after a break</body></html>"""


async def test_html_becomes_all_its_visible_text() -> None:
    document = await read_sample("a.html", _PAGE)
    assert (document.title, document.format, document.mime_type) == ("The & title", "markdown", "text/html")
    assert document.metadata == {"lang": "en", "description": "About it"}
    lines = document.text.splitlines()
    for line in (
        "Home",
        "# Big heading",
        "First paragraph with a link, 1 < 2 and a new line.",
        "Second, never closed",
        "- one",
        "- two",
        "  - inner",
        "3. third",
        "Name | Age",
        "Tom | 7",
        "  kept",
        "   as is",
        "A picture of tea",
        "Term",
        "Meaning",
        "after a break",
    ):
        assert line in [shown.rstrip() for shown in lines], line
    for word in ("Label", "Press", "One", "Two", "Area", "Loose text"):
        assert word in document.text
    for word in ("not me", "color", "hidden"):
        assert word not in document.text


@pytest.mark.parametrize(
    "html",
    [
        "<p>seen",
        "<p>a</div></p></span>seen",
        "<a<b>c>seen",
        "<!-- x --><![CDATA[x]]>seen",
        "<p title='>'>seen</p>",
        "&#0;seen&#xD800;",
    ],
)
async def test_broken_html_keeps_its_text(html: str) -> None:
    document = await read_sample("a.html", html)
    assert "seen" in document.text
    assert "\0" not in document.text
    document.text.encode()


async def test_html_without_text_is_rejected() -> None:
    with pytest.raises(FileUnreadableError, match="no visible text"):
        await read_sample("a.html", "<html><script>x()</script></html>")


async def test_large_html_is_read_in_a_process_with_the_same_result() -> None:
    body = "".join(
        f"<h2>Part {number}</h2><p>{sentence}</p>" for number, sentence in enumerate(sample_files.SENTENCES * 40)
    )
    document = await read_sample("a.html", f"<title>T</title>{body}")
    assert document.title == "T"
    assert all(sentence in document.text for sentence in sample_files.SENTENCES)
    assert document.text.count("## Part ") == len(sample_files.SENTENCES) * 40


async def test_slow_html_ends_at_the_timeout() -> None:
    settings = Settings(ingest=IngestSettings(timeout_seconds=1.5))
    started = time.monotonic()
    # Some versions of Python read it at once.
    with suppress(FileUnreadableError):
        await read_file(file("a.html", "<p>text</p>" + "<!-" * 3_000_000), settings)
    assert time.monotonic() - started < 10


async def test_table_keeps_every_row_with_column_names() -> None:
    text = 'Name,Note,Age\nTom,"likes, tea",7\n"Ann ""A""","two\nlines",\n\nBob,x,8,more\n'
    document = await read_sample("a.csv", text)
    assert document.format == "table"
    assert document.text.splitlines() == [
        "Name; Note; Age",
        "Name: Tom; Note: likes, tea; Age: 7",
        'Name: Ann "A"; Note: two lines',
        "Name: Bob; Note: x; Age: 8; more",
    ]
    assert document.metadata["rows"] == 4


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
async def test_delimiter_is_detected(delimiter: str) -> None:
    rows = [["Name", "Price"], ["Tea, green; loose", "3,50"], ["Coffee", "4"]]
    text = "\n".join(delimiter.join(f'"{cell}"' for cell in row) for row in rows)
    document = await read_sample("a.csv", text)
    assert document.text.splitlines()[1:] == ["Name: Tea, green; loose; Price: 3,50", "Name: Coffee; Price: 4"]


async def test_unusual_tables_lose_no_cells() -> None:
    assert (await read_sample("a.csv", "1,2\n3,4\n")).text == "1; 2\n3; 4\n"
    huge = "x" * 300_000
    assert huge in (await read_sample("a.csv", f"a,b\n{huge},y\n")).text
    broken = (await read_sample("a.csv", 'a,b\n"never closed,1\nrow,2\nlast,3\n')).text
    assert all(word in broken for word in ("never closed", "row", "last", "3"))
    assert (await read_sample("a.tsv", "a,b\tc\nd,e\tf\n")).text == "a,b; c\na,b: d,e; c: f\n"
    many = "n,v\n" + "".join(f"row{number},{number}\n" for number in range(20_000))
    assert (await read_sample("a.csv", many)).text.count("\n") == 20_001


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.json", '{"a": [1, 2.50, null], "kind": "agent"}\n', "agent"),
        ("a.jsonl", '{"a": 1}\n\n{"b": 2}\n', None),
        ("a.yaml", "kind: evaluator\nspec:\n  kind: inner\n", "evaluator"),
        ("a.yml", "- kind\n- agent\n", None),
        ("a.yaml", "spec: {kind: x}\nname: kind\n", None),
    ],
)
async def test_data_keeps_its_text(name: str, text: str, kind: str | None) -> None:
    document = await read_sample(name, text)
    assert (document.text, document.format, document.metadata.get("kind")) == (text, "data", kind)


async def test_json_on_one_line_is_formatted_with_equal_values() -> None:
    value = {
        "names": [f"Name {number}" for number in range(200)],
        "empty": [],
        "u": 'ü\ud83d\ude00 \\ "q" {x, y: [z]}',
        "n": 1.5,
    }
    document = await read_sample("a.json", json.dumps(value))
    assert json.loads(document.text) == json.loads(json.dumps(value))
    assert document.metadata["laid_out"] is True
    assert document.text.count("\n") > 200
    assert "ü😀" in document.text
    exact = '{"a":1E400,"a":0.10,"b":"\\ud800","c":"' + "x" * 1000 + '"}'
    laid_out = (await read_sample("a.json", exact)).text
    assert "".join(laid_out.split()) == exact


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.json", "{not json"), ("a.yaml", "a: [1"), ("a.jsonl", '{"a": 1}\n{'), ("a.json", "[" * 100_000)],
)
async def test_invalid_data_is_read_as_text_with_the_error(name: str, text: str) -> None:
    document = await read_sample(name, text)
    assert (document.text, document.format) == (text, "text")
    assert document.metadata["invalid"]


async def test_yaml_bomb_is_read_as_short_text() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    merged = ["b0: &b0 {k: v}"] + [f"b{n}: &b{n} {{<<: [{', '.join([f'*b{n - 1}'] * 9)}]}}" for n in range(1, 30)]
    started = time.process_time()
    for text in ("\n".join(lines), "\n".join(merged)):
        assert (await read_sample("a.yaml", text)).text == text
        assert (await read_sample("a.md", f"---\n{text}\n---\nText")).metadata == {}
    assert time.process_time() - started < 3


async def test_formatting_deeply_nested_json_stays_small() -> None:
    text = "[" * 900 + "1" + "]" * 900 + " " * 1000
    assert len((await read_sample("a.json", text)).text) < 100_000


async def test_content_decides_before_the_name() -> None:
    document = await read_sample("a.txt", sample_files.pdf(["A PDF in disguise."]))
    assert (document.mime_type, document.text.strip()) == ("application/pdf", "A PDF in disguise.")
    with pytest.raises(FileUnreadableError, match="is called PDF but is a text"):
        await read_sample("a.pdf", "<html>Please log in</html>")
    mention = await read_sample("a.txt", "A file that begins with %PDF-1.4 is a PDF.")
    assert mention.mime_type == "text/plain"


@pytest.mark.parametrize(
    ("uri", "said", "kind"),
    [
        ("https://x.org/page", "text/html; charset=utf-8", "text/html"),
        ("https://x.org/page.php?id=1", "text/html", "text/html"),
        ("https://x.org/data", "application/json", "application/json"),
        ("https://x.org/a.md?raw=1", "text/plain", "text/markdown"),
        ("https://x.org/a.csv", "application/octet-stream", "text/csv"),
        ("https://x.org/main.py", "text/plain", "text/x-python"),
        ("https://x.org", "text/plain", "text/plain"),
    ],
)
async def test_name_and_server_decide_on_html(uri: str, said: str, kind: str) -> None:
    document = await read_sample(uri.removeprefix("https://"), '{"a": 1}', said, uri)
    assert document.mime_type == kind


@pytest.mark.parametrize(
    "data", [sample_files.packed({"a.txt": "x"}), b"\x1f\x8b\x08\0", b"Rar!\x1a\x07\0", b"7z\xbc\xaf\x27\x1c"]
)
async def test_archive_is_rejected_with_advice(data: bytes) -> None:
    with pytest.raises(FileUnreadableError, match=r"is an archive: unpack it"):
        await read_sample("a.zip", data)


async def test_recording_is_transcribed() -> None:
    async with Transcriber("Remember the milk") as transcriber:
        settings = Settings(audio=AudioSettings(provider="openai", base_url=transcriber.url))
        document = await read_file(file("memo.wav", sample_files.sound()), settings)
    assert (document.text, document.format, document.mime_type) == ("Remember the milk", "text", "audio/wav")
    assert document.metadata == {"transcribed": True}


async def test_recording_that_cannot_be_transcribed_is_rejected() -> None:
    async with Transcriber(" ") as silence:
        settings = Settings(audio=AudioSettings(provider="openai", base_url=silence.url, max_bytes=40_000))
        with pytest.raises(FileUnreadableError, match="no speech"):
            await read_file(file("memo.wav", sample_files.sound()), settings)
        with pytest.raises(FileTooLargeError, match="AUDIO__MAX_BYTES"):
            await read_file(file("memo.wav", sample_files.sound() * 2), settings)
        with pytest.raises(FileUnreadableError, match="cannot be read as a recording"):
            await read_file(file("memo.mp3", b"not a recording at all"), settings)
        with pytest.raises(FileUnreadableError, match="is a video"):
            await read_file(file("film.mp4", b"\0\0\0\x18ftypisom\0\0\0\0"), settings)
