"""Watch local folders: ingest new and changed files, and delete those that are removed."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from loguru import logger

from rem.errors import InvalidInputError
from rem.ingest.file_store import FileStore
from rem.ingest.ingester import Index, Ingester, OnFile
from rem.ingest.models import FileSource, IngestOptions, IngestReport, Listing
from rem.ingest.sources.ignore_rules import ListingOptions
from rem.ingest.sources.local import parse_path, resolve_path
from rem.text import clean_text

POLL_SECONDS = 1.0
"""A file is read when it has not changed between two polls, because an editor may still be writing it."""
MAX_POLLING_SHARE = 0.1
"""Share of the time that is spent on polling. Large folders are polled less often."""
MIN_FILES_OF_EMPTIED_FOLDER = 4
"""If so many files or more are gone, and the folder is empty, its disk may not be mounted. They are not deleted."""


class _Version(NamedTuple):
    """What tells that a file has changed."""

    modified_ns: int
    size: int
    inode: int


@dataclass(frozen=True, slots=True)
class _Scan:
    """The state of the watched folders."""

    listing: Listing
    versions: Mapping[str, _Version]
    """By URI. A file that vanished during the scan is missing."""
    missing_folders: frozenset[Path] = frozenset()
    """Watched folders, and folders of watched files, that do not exist."""


@dataclass(slots=True)
class _Watch:
    """The state of one call of `watch_folders`."""

    ingester: Ingester
    places: Sequence[str]
    options: IngestOptions
    listing_options: ListingOptions
    roots: Sequence[Path]
    folders: Sequence[Path] = ()
    """The watched folders, and the folders of the watched files."""
    ingested: dict[str, _Version] = field(default_factory=dict)
    """The version of each file that was read last, by URI."""
    known: set[str] = field(default_factory=set)
    """URIs of stored files below the watched folders."""

    def __post_init__(self) -> None:
        self.folders = [root if root.is_dir() else root.parent for root in self.roots]

    async def scan(self) -> _Scan:
        listing = await self.ingester.list_files(self.places, self.listing_options)
        versions, missing = await asyncio.to_thread(_read_state, listing.sources, self.folders)
        return _Scan(listing, versions, missing)

    async def load_known(self) -> None:
        """Load the stored files below the watched folders, some of which may be removed since an earlier run."""
        store = self.ingester.store
        async with store.executor.connection() as connection:
            file_store = FileStore(connection, store.scope)
            for root in self.roots:
                prefix = f"{root.as_uri()}/" if root.is_dir() else root.as_uri()
                self.known |= await file_store.list_uris_below(prefix)

    def find_changes(self, before: _Scan, now: _Scan) -> list[FileSource]:
        """Return the files that are new or changed, and have not changed since the scan before."""
        return [
            source
            for source in now.listing.sources
            if (version := now.versions.get(source.uri)) is not None
            and version == before.versions.get(source.uri)
            and version != self.ingested.get(source.uri)
        ]

    async def find_removed(self, before: _Scan, now: _Scan) -> list[str]:
        """Return the stored files that neither scan has seen and that do not exist.

        A missing folder may be on a disk that is not mounted: its files stay. So do those of an emptied one.
        """
        candidates = self.known - now.versions.keys() - before.versions.keys()
        gone = now.missing_folders | before.missing_folders
        return sorted(await asyncio.to_thread(_select_missing, candidates, gone))

    def release_emptied(self, removed: Iterable[str], now: _Scan) -> tuple[list[str], list[str]]:
        """Return those of the removed files that are to be deleted, and a note on each folder that was emptied.

        The files of such a folder are not watched until they are there again: a file that someone puts into the place
        where a disk belongs does not mean that the others were removed.
        """
        left, notes = set(removed), []
        for root in self.roots:
            prefix = f"{root.as_uri()}/"
            gone = {uri for uri in left if uri.startswith(prefix)}
            is_emptied = not any(uri.startswith(prefix) for uri in now.versions)
            if is_emptied and len(gone) >= MIN_FILES_OF_EMPTIED_FOLDER:
                left -= gone
                self._forget(gone)
                notes.append(
                    f"{clean_text(str(root))} has no files any more. Its {len(gone)} files stay in memory, because a "
                    "disk may not be mounted. If you removed them, delete them with `rem delete KEY --table files`."
                )
        return sorted(left), notes

    def _forget(self, uris: Iterable[str]) -> None:
        for uri in uris:
            self.known.discard(uri)
            self.ingested.pop(uri, None)

    def note(self, sources: Iterable[FileSource], scan: _Scan, report: IngestReport) -> None:
        """Remember what was ingested and removed."""
        for source in sources:
            if (version := scan.versions.get(source.uri)) is not None:
                self.ingested[source.uri] = version
        for outcome in report.files:
            if outcome.status == "removed":
                self._forget([outcome.uri])
            elif outcome.status in ("added", "changed", "unchanged"):
                self.known.add(outcome.uri)


async def watch_folders(
    ingester: Ingester,
    places: Sequence[str],
    options: IngestOptions,
    listing_options: ListingOptions,
    *,
    index: Index,
    on_file: OnFile | None = None,
    poll_seconds: float = POLL_SECONDS,
) -> AsyncIterator[IngestReport]:
    """Ingest local places, and yield a report of that and of every change, until this is cancelled."""
    roots = [_resolve_root(place, ingester) for place in places]
    watch = _Watch(ingester, places, options, listing_options, roots)
    await watch.load_known()
    before = await watch.scan()
    report = await ingester.ingest_sources(before.listing.sources, options, index=index, on_file=on_file)
    report.add_listing(before.listing)
    await _remove(watch, await watch.find_removed(before, before), before, report)
    watch.note(before.listing.sources, before, report)
    yield report
    scan_seconds = 0.0
    while True:
        await asyncio.sleep(max(poll_seconds, scan_seconds / MAX_POLLING_SHARE))
        started = time.monotonic()
        now = await watch.scan()
        scan_seconds = time.monotonic() - started
        _log_missing_folders(before, now)
        report = await _update(watch, before, now, index, on_file)
        before = now
        if report.files or report.notes:
            yield report


async def _update(watch: _Watch, before: _Scan, now: _Scan, index: Index, on_file: OnFile | None) -> IngestReport:
    """Store what has changed since the last update."""
    changes = watch.find_changes(before, now)
    removed = await watch.find_removed(before, now)
    report = IngestReport(ignored=Counter())
    if changes:
        report = await watch.ingester.ingest_sources(changes, watch.options, index=index, on_file=on_file)
    if removed:
        await _remove(watch, removed, now, report)
    watch.note(changes, now, report)
    return report


async def _remove(watch: _Watch, removed: Sequence[str], now: _Scan, report: IngestReport) -> None:
    """Delete removed files, unless a folder was emptied."""
    uris, notes = watch.release_emptied(removed, now)
    report.notes += notes
    report.files += await watch.ingester.remove(uris)


def _resolve_root(place: str, ingester: Ingester) -> Path:
    if "://" in place and not place.lower().startswith("file:"):
        raise InvalidInputError(f"Only local files and folders can be watched, not {place}.")
    root = resolve_path(place, ingester.policy)
    if not root.exists():
        raise InvalidInputError(f"There is no file or folder {parse_path(place)} to watch.")
    return root


def _read_state(sources: Sequence[FileSource], folders: Sequence[Path]) -> tuple[dict[str, _Version], frozenset[Path]]:
    versions = {source.uri: version for source in sources if (version := _read_version(source.uri)) is not None}
    return versions, frozenset(folder for folder in folders if not folder.exists())


def _read_version(uri: str) -> _Version | None:
    try:
        status = Path(parse_path(uri)).stat()
    except OSError:
        return None
    return _Version(status.st_mtime_ns, status.st_size, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _select_missing(uris: Iterable[str], gone: frozenset[Path]) -> list[str]:
    """Return the URIs whose files do not exist, unless the watched folder itself is gone."""
    paths = {uri: Path(parse_path(uri)) for uri in uris}
    return [
        uri
        for uri, path in paths.items()
        if _is_missing(path) and not any(path.is_relative_to(folder) for folder in gone)
    ]


def _is_missing(path: Path) -> bool:
    """Return whether there is no such file. A file that cannot be reached, such as in a locked folder, may exist."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _log_missing_folders(before: _Scan, now: _Scan) -> None:
    for folder in sorted(now.missing_folders - before.missing_folders):
        logger.warning("{} is gone. Its files stay in memory, and REM goes on when it is there again.", folder)
