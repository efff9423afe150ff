"""Hostile documents: the parser process always ends, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
import zipfile
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from pathlib import Path

import psutil
import pytest

from rem.errors import FileTooLargeError, FileUnreadableError, MissingExtraError
from rem.ingest.readers.dispatch import read_file
from rem.ingest.readers.documents import run_document_process
from rem.ingest.readers.mime import DOCX, PDF
from rem.settings import IngestSettings, Settings
from tests.ingest import sample_files
from tests.ingest.sample_files import file

pytestmark = pytest.mark.slow


def processes() -> set[int]:
    """The processes below this one."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that happens outside of this process."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
async def _nothing_is_left() -> AsyncIterator[None]:
    before = processes(), psutil.Process().num_fds()
    yield
    assert processes() <= before[0]
    assert psutil.Process().num_fds() <= before[1] + 2


async def test_zip_bomb_is_rejected_before_parsing() -> None:
    bomb = sample_files.bomb(300_000_000)
    assert len(bomb) < 1_000_000
    memory = psutil.Process().memory_info().rss
    with pytest.raises(FileTooLargeError, match="compressed more tightly"):
        await read_file(file("bomb.docx", bomb), Settings())
    assert psutil.Process().memory_info().rss - memory < 100_000_000


async def test_unpacked_size_of_a_document_is_limited() -> None:
    settings = Settings(ingest=IngestSettings(max_expanded_bytes=100_000))
    with pytest.raises(FileTooLargeError, match="INGEST__MAX_EXPANDED_BYTES"):
        await read_file(file("a.docx", sample_files.word()), settings)


async def test_false_sizes_in_an_archive_are_detected() -> None:
    """It says that its parts hold ten bytes each."""
    data = bytearray(sample_files.bomb(50_000_000))
    for mark, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = data.rfind(mark)
        data[place + offset : place + offset + 4] = (10).to_bytes(4, "little")
    with pytest.raises((FileUnreadableError, FileTooLargeError)):
        await read_file(file("bomb.docx", bytes(data)), Settings())


async def test_archive_with_too_many_parts_is_rejected() -> None:
    data = BytesIO(sample_files.word())
    with zipfile.ZipFile(data, "a") as archive:
        for number in range(10_001):
            archive.writestr(f"word/media/{number}", b"")
    with pytest.raises(FileTooLargeError, match="parts, more than 10,000"):
        await read_file(file("many.docx", data.getvalue()), Settings())


async def test_nested_archives_are_not_unpacked() -> None:
    data = BytesIO(sample_files.word())
    with zipfile.ZipFile(data, "a") as archive:
        archive.writestr("word/embeddings/inner.docx", sample_files.packed({"zeros": bytes(50_000_000)}))
    document = await read_file(file("a.docx", data.getvalue()), Settings())
    assert sample_files.SENTENCES[0] in document.text


async def test_xml_entity_expansion_is_harmless() -> None:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    text = '<d xmlns:w="w"><w:p><w:t>&e11;</w:t></w:p></d>'
    xml = f'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY e0 "lol">{entities}]>{text}'
    data = BytesIO(sample_files.word())
    with zipfile.ZipFile(data, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/header9.xml", xml)
    settings = Settings(ingest=IngestSettings(timeout_seconds=20))
    with pytest.raises(FileUnreadableError, match="cannot be read as DOCX"):
        await read_file(file("laughs.docx", data.getvalue()), settings)


async def test_slow_parser_is_ended() -> None:
    settings = Settings(ingest=IngestSettings(timeout_seconds=1.5))
    started = time.monotonic()
    with pytest.raises(FileUnreadableError, match=r"within 1.5 s \(INGEST__TIMEOUT_SECONDS\)"):
        await read_file(file("slow.pdf", sample_files.slow_pdf()), settings)
    assert time.monotonic() - started < 5


async def test_parser_with_too_much_memory_is_ended() -> None:
    with pytest.raises(FileUnreadableError, match="more memory than one file may use"):
        await run_document_process(
            file("a.docx", sample_files.long_word(200_000)), DOCX, "DOCX", IngestSettings(), memory_bytes=600_000_000
        )


async def test_cancellation_ends_the_parser() -> None:
    before = processes()
    reading = asyncio.create_task(read_file(file("slow.pdf", sample_files.slow_pdf()), Settings()))
    await until(lambda: processes() - before)
    await asyncio.sleep(0.5)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert processes() <= before


async def test_killed_parser_is_reported() -> None:
    before = processes()
    reading = asyncio.create_task(read_file(file("slow.pdf", sample_files.slow_pdf()), Settings()))
    await until(lambda: processes() - before)
    await asyncio.sleep(0.5)
    for pid in processes() - before:
        os.kill(pid, signal.SIGSEGV)
    with pytest.raises(FileUnreadableError, match="cannot be read as PDF"):
        await reading


async def test_parser_ends_with_a_killed_worker(tmp_path: Path) -> None:
    (tmp_path / "slow.pdf").write_bytes(sample_files.slow_pdf())
    program = (
        "import asyncio, sys; from pathlib import Path; from rem.ingest.models import FetchedFile\n"
        "from rem.ingest.readers.dispatch import read_file; from rem.settings import Settings\n"
        "asyncio.run(read_file(FetchedFile('slow.pdf', 'x', Path(sys.argv[1]).read_bytes()), Settings()))"
    )
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(tmp_path / "slow.pdf"))
    await until(psutil.Process(worker.pid).children)
    await asyncio.sleep(0.7)
    (parser,) = psutil.Process(worker.pid).children()
    worker.kill()
    await worker.wait()
    await until(lambda: not parser.is_running() or parser.status() == psutil.STATUS_ZOMBIE)


async def test_documents_are_read_concurrently() -> None:
    data = sample_files.pdf(sample_files.SENTENCES[:5])
    documents = await asyncio.gather(*(read_file(file(f"{number}.pdf", data), Settings()) for number in range(6)))
    assert len({document.text for document in documents}) == 1


async def test_missing_extra_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where the parser is not installed, nor where it cannot be loaded."""
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "xberg", None)
        with pytest.raises(MissingExtraError, match=r"PDF needs .* pip install 'remstack\[ingest\]'"):
            await read_file(file("a.pdf", sample_files.pdf(["x"])), Settings())
        assert "words" in (await read_file(file("a.html", "<p>words</p>"), Settings())).text
    (tmp_path / "xberg.py").write_text("raise ImportError('no such library')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingExtraError, match=r"pip install 'remstack\[ingest\]'"):
        await run_document_process(file("a.pdf", sample_files.pdf(["x"])), PDF, "PDF", IngestSettings())


async def test_parser_cannot_write_files(tmp_path: Path) -> None:
    """A library that wants to keep something on the way fails, whatever it is and wherever it would be."""
    (tmp_path / "xberg.py").write_text(f"open({str(tmp_path / 'left')!r}, 'w').write('x')")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "rem.ingest.readers.document_process"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    task = {"mime_type": PDF, "length": 1, "memory_bytes": 1 << 30, "seconds": 10, "max_bytes": 1000}
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(task).encode() + b"\nx")
    answer = await process.stdout.read()
    await process.wait()
    process.stdin.close()
    assert not answer or json.loads(answer)["error"]
    assert not (tmp_path / "left").exists() or not (tmp_path / "left").read_text()


@pytest.mark.parametrize("kids", ["2 0 R", "3 0 R 2 0 R", "5 0 R"])
async def test_pdf_whose_page_tree_contains_itself_is_rejected_at_once(kids: str) -> None:
    data = sample_files.cyclic_pdf(kids)
    started = time.monotonic()
    with pytest.raises(FileUnreadableError, match=r"a\.pdf cannot be read as PDF: its page tree contains itself\."):
        await read_file(file("a.pdf", data), Settings(ingest=IngestSettings(timeout_seconds=20)))
    assert time.monotonic() - started < 15
