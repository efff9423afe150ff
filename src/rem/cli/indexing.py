"""Indexing with progress, for the commands that write much."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rem.cli.output import progress_bar
from rem.cli.runtime import print_to_stderr
from rem.errors import EmbeddingError

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.retrieval.indexer import IndexReport


@dataclass(frozen=True, slots=True)
class ReembedReport:
    """What `rem db reembed` did, and what is left."""

    embedded: int
    waiting: int


async def index_with_progress(
    rem: Rem, *, user: str | None = None, tenant: str = "default", everyone: bool = False, anew: bool = False
) -> IndexReport:
    """Index what waits, or everything `anew`."""
    done: Counter[str] = Counter()
    with progress_bar("Indexing") as on_rows, progress_bar("Embedding") as on_passages:

        def on_progress(what: str, more: int) -> None:
            done[what] += more
            (on_rows if what == "indexed" else on_passages)(done[what], None)

        return await rem.index(user=user, tenant=tenant, everyone=everyone, anew=anew, on_progress=on_progress)


async def index_new_rows(rem: Rem, *, user: str | None = None, tenant: str = "default") -> None:
    """Index after writing. The rows are stored either way, so that a failing embedder does not fail the command."""
    try:
        await index_with_progress(rem, user=user, tenant=tenant)
    except EmbeddingError as error:
        print_to_stderr(f"Stored, and found by words but not by meaning yet: {error}")


async def reembed_with_progress(rem: Rem, *, background: bool) -> ReembedReport:
    """Switch to the model of the settings, and embed what another one embedded."""
    waiting = await rem.switch_model()
    if background:
        return ReembedReport(0, waiting)
    done = 0
    with progress_bar("Embedding") as on_passages:

        def on_progress(_what: str, more: int) -> None:
            nonlocal done
            done += more
            on_passages(done, waiting)

        embedded = await rem.reembed(on_progress)
    return ReembedReport(embedded, max(0, waiting - embedded))
