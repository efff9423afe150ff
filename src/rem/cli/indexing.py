"""Index and embed with progress bars, for commands that write many rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rem.cli.output import progress_bar
from rem.cli.runtime import print_to_stderr
from rem.errors import EmbeddingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rem.app import Rem
    from rem.search.indexer import IndexProgress, IndexReport


@dataclass(frozen=True, slots=True)
class ReembedReport:
    """The number of passages that were embedded, and of those that still wait."""

    embedded: int
    waiting: int


async def index_with_progress(index: Callable[[IndexProgress], Awaitable[IndexReport]]) -> IndexReport:
    """Show the progress of `index`."""
    done: Counter[str] = Counter()
    with progress_bar("Indexing") as on_rows, progress_bar("Embedding") as on_passages:

        def on_progress(stage: str, count: int) -> None:
            done[stage] += count
            (on_rows if stage == "indexed" else on_passages)(done[stage], None)

        return await index(on_progress)


async def index_new_rows(rem: Rem, *, user: str | None = None, tenant: str = "default") -> None:
    """Index after writing. Only print the error of a failing embedder, because the rows are stored."""
    try:
        await index_with_progress(rem.for_user(user, tenant=tenant).index)
    except EmbeddingError as error:
        print_to_stderr(f"The rows are stored and found by words, but not by meaning yet: {error}")


async def reembed_with_progress(rem: Rem, *, background: bool) -> ReembedReport:
    """Switch to the configured model, and embed the passages that another model embedded."""
    waiting = await rem.switch_model()
    if background:
        return ReembedReport(0, waiting)
    done = 0
    with progress_bar("Embedding") as on_passages:

        def on_progress(_stage: str, count: int) -> None:
            nonlocal done
            done += count
            on_passages(done, waiting)

        embedded = await rem.reembed(on_progress)
    return ReembedReport(embedded, max(0, waiting - embedded))
