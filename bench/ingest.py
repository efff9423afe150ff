"""Ingest and index a folder of Markdown files, compared with embedding the same chunks alone."""

from __future__ import annotations

import random
import re
import tempfile
import time
from pathlib import Path

from bench.measure import Result, median, print_progress
from rem import Rem, Resource, Settings
from rem.search.embedder_factory import open_embedder

FILES = 1_000
ROUNDS = 3
_WORDS = re.findall(
    r"\S+",
    "the a and of to in we you it was is on for with that this about when where meeting garden project memory river "
    "Sarah Bob compiler Tuesday invoice harbour painting marathon coffee train ticket dentist birthday recipe violin "
    "deploy rollback incident region customer contract schema latency replica backlog review quarter budget release "
    "not are be as at by an or from but they which one had have will can if so up out who get my do me no go "
    "2026-05-17 v2.4.1 `rem_lookup()` Müller Nakagawa idempotent 14:30 https://example.com/x?id=42 €1,250 re-index",
)


async def run(settings: Settings, files: int = FILES, rounds: int = ROUNDS) -> Result:
    """Ingest the folder for a new owner in each round, in turn with embedding the same texts."""
    result = Result("ingest")
    ingest_seconds, embed_seconds, unchanged_seconds = [], [], []
    with tempfile.TemporaryDirectory(prefix="rem-bench-files-") as temporary:
        folder = Path(temporary) / "docs"
        _write_files(folder, files)
        async with Rem.open(settings) as rem:
            embedder = open_embedder(settings)
            await embedder.embed_one("build and load")
            for number in range(rounds):
                owner = f"owner-{number}"
                ingest_seconds.append(await _time_ingest(rem, folder, owner))
                texts = [chunk.content for chunk in await rem.for_user(owner).store.find(Resource, limit=10_000)]
                started = time.perf_counter()
                await embedder.embed(texts)
                embed_seconds.append(time.perf_counter() - started)
                unchanged_seconds.append(await _time_ingest(rem, folder, owner))
                print_progress(
                    f"{files:,} files, {len(texts):,} chunks: {ingest_seconds[-1]:.2f} s, "
                    f"the embedder alone {embed_seconds[-1]:.2f} s, unchanged {unchanged_seconds[-1]:.2f} s"
                )
            await embedder.close()
    result.figures = {
        "files": files,
        "chunks": len(texts),
        "seconds": round(median(ingest_seconds), 3),
        "embedder_alone_seconds": round(median(embed_seconds), 3),
        "again_unchanged_seconds": round(median(unchanged_seconds), 3),
    }
    ratios = [whole / alone for whole, alone in zip(ingest_seconds, embed_seconds, strict=True)]
    result.check(f"{files:,} Markdown files against the embedder alone", median(ratios), 1.3)
    return result


async def _time_ingest(rem: Rem, folder: Path, owner: str) -> float:
    """Ingest and index the folder, and return the seconds that it took."""
    started = time.perf_counter()
    report = await rem.for_user(owner).ingest(folder)
    seconds = time.perf_counter() - started
    assert not report.failures, report.failures[0]
    return seconds


def _write_files(folder: Path, files: int) -> None:
    words = random.Random(7)
    for number in range(files):
        path = folder / f"area-{number % 20}" / f"page-{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        sections = [f"# Page {number}", _make_text(words, 60)]
        for section in range(words.randint(2, 6)):
            sections += [f"## Section {section} of page {number}", _make_text(words, words.randint(60, 160))]
        path.write_text("\n\n".join(sections) + "\n", encoding="utf-8")


def _make_text(words: random.Random, length: int) -> str:
    sentences = [" ".join(words.choices(_WORDS, k=12)).capitalize() + "." for _ in range(max(1, length // 12))]
    return " ".join(sentences)
