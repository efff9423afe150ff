"""Markdown files from a folder to a memory that can be searched, against the embedder alone on the same chunks."""

from __future__ import annotations

import random
import re
import tempfile
import time
from pathlib import Path

from bench.measure import Result, median, say
from rem import Rem, Resource, Settings
from rem.cli.ingest import ingest_sources
from rem.embeddings import open_embedder
from rem.ingest.ingester import IngestOptions
from rem.ingest.sources.fetch import list_sources
from rem.ingest.sources.policy import UNRESTRICTED

FILES = 1_000
_ROUNDS = 3
_WORDS = re.findall(
    r"\S+",
    "the a and of to in we you it was is on for with that this about when where meeting garden project memory river "
    "Sarah Bob compiler Tuesday invoice harbour painting marathon coffee train ticket dentist birthday recipe violin "
    "deploy rollback incident region customer contract schema latency replica backlog review quarter budget release "
    "not are be as at by an or from but they which one had have will can if so up out who get my do me no go "
    "2026-05-17 v2.4.1 `rem_lookup()` Müller Nakagawa idempotent 14:30 https://example.com/x?id=42 €1,250 re-index",
)


async def run(settings: Settings, files: int = FILES, rounds: int = _ROUNDS) -> Result:
    """Take the folder in anew each round, in turns with embedding the same texts."""
    result = Result("ingest")
    whole, alone, again = [], [], []
    with tempfile.TemporaryDirectory(prefix="rem-bench-files-") as place:
        folder = f"{place}/docs"
        _write(Path(folder), files)
        async with Rem.open(settings) as rem:
            embedder = open_embedder(settings)
            await embedder.embed_one("build and load")
            for number in range(rounds):
                owner = f"owner-{number}"
                whole.append(await _ingest(rem, settings, folder, owner))
                texts = [chunk.content for chunk in await _chunks(rem, owner)]
                started = time.perf_counter()
                await embedder.embed(texts)
                alone.append(time.perf_counter() - started)
                again.append(await _ingest(rem, settings, folder, owner))
                say(
                    f"{files:,} files, {len(texts):,} chunks: {whole[-1]:.2f} s, the embedder alone {alone[-1]:.2f} s, "
                    f"unchanged {again[-1]:.2f} s"
                )
            await embedder.close()
    result.figures = {
        "files": files,
        "chunks": len(texts),
        "seconds": round(median(whole), 3),
        "embedder_alone_seconds": round(median(alone), 3),
        "again_unchanged_seconds": round(median(again), 3),
    }
    ratios = [one / other for one, other in zip(whole, alone, strict=True)]
    result.check(f"{files:,} Markdown files against the embedder alone", median(ratios), 1.3)
    return result


async def _ingest(rem: Rem, settings: Settings, folder: str, owner: str) -> float:
    started = time.perf_counter()
    listing = await list_sources(folder, UNRESTRICTED, settings.ingest)
    report = await ingest_sources(rem, listing.sources, IngestOptions(), user=owner)
    await rem.index(user=owner)
    seconds = time.perf_counter() - started
    assert not report.failures, report.failures[0]
    return seconds


async def _chunks(rem: Rem, owner: str) -> list[Resource]:
    return await rem.store(owner).find(Resource, limit=10_000)


def _write(folder: Path, files: int) -> None:
    words = random.Random(7)
    for number in range(files):
        path = folder / f"area-{number % 20}" / f"page-{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        sections = [f"# Page {number}", _text(words, 60)]
        for section in range(words.randint(2, 6)):
            sections += [f"## Section {section} of page {number}", _text(words, words.randint(60, 160))]
        path.write_text("\n\n".join(sections) + "\n", encoding="utf-8")


def _text(words: random.Random, length: int) -> str:
    sentences = [" ".join(words.choices(_WORDS, k=12)).capitalize() + "." for _ in range(max(1, length // 12))]
    return " ".join(sentences)
