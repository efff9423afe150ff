"""Read and list local files, as far as the policy allows it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from rem.errors import FetchForbiddenError, FileMissingError, FileTooLargeError, FileUnreadableError, InvalidInputError
from rem.ingest.dates import convert_mtime
from rem.ingest.models import FetchedFile, FileSource, Listing
from rem.ingest.sources.ignore_rules import IgnoreRules, ListingOptions
from rem.ingest.sources.policy import FetchPolicy
from rem.settings import IngestSettings

_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Opening never waits for a writer and never takes over a terminal."""
READ_BYTES = 1 << 20


def read_local(place: str, policy: FetchPolicy, settings: IngestSettings) -> FetchedFile:
    """Read a file given by its path or `file://` URL."""
    path = resolve_path(place, policy)
    with _opened(path, policy) as descriptor:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise InvalidInputError(f"{path} is a folder: ingest its files.")
        data = _read(descriptor, path, settings.max_bytes)
    return FetchedFile(_display_name(path, Path()), path.as_uri(), data, modified_at=convert_mtime(status.st_mtime))


def is_folder(place: str, policy: FetchPolicy) -> bool:
    """Return whether a place that may be read is a folder."""
    return resolve_path(place, policy).is_dir()


def list_local(place: str, policy: FetchPolicy, options: ListingOptions) -> Listing:
    """List the regular files below a folder by name, without those that the rules ignore."""
    folder = resolve_path(place, policy)
    rules = IgnoreRules(options)
    if policy.is_unrestricted:
        rules.load_parents(folder)
    listing = Listing()
    links: list[Path] = []
    with _opened(folder, policy) as descriptor:
        walk = os.fwalk(
            ".", dir_fd=descriptor, follow_symlinks=False, onerror=lambda error: _add_error(listing, folder, error)
        )
        for path, folders, files, folder_descriptor in walk:
            below = Path(path)
            rules.enter("" if path == "." else below.as_posix(), folder_descriptor)
            folders[:] = _select_folders(listing, rules, below, folders, folder_descriptor)
            for name in sorted(files):
                if reason := rules.check((below / name).as_posix()):
                    listing.ignored[reason] += 1
                else:
                    _add_file(listing, links, folder, below / name, folder_descriptor)
            if not options.recursive:
                folders.clear()
    _add_links(listing, folder, links)
    listing.notes += rules.notes
    listing.sources.sort(key=lambda source: source.name)
    return listing


def _select_folders(
    listing: Listing, rules: IgnoreRules, below: Path, names: Sequence[str], descriptor: int
) -> list[str]:
    """Return the subfolders to list, and count the others as ignored."""
    selected = []
    for name in sorted(names):
        reason = rules.check_folder((below / name).as_posix(), descriptor)
        if reason is None and _is_link(name, descriptor):
            reason = "link"
        if reason is None:
            selected.append(name)
        else:
            listing.ignored[reason] += 1
    return selected


def resolve_path(place: str, policy: FetchPolicy) -> Path:
    """Return the absolute path of a place with all links resolved.

    Raise a FetchForbiddenError if the policy forbids it. The error does not reveal whether the file exists.
    """
    text = parse_path(place)
    if "\0" in text or not text.strip():
        raise InvalidInputError("The path is empty or contains a zero byte.")
    if policy.is_unrestricted:
        return _resolve_links(_expand_home(Path(text)), place)
    path = _resolve_links(Path(text), place)
    if _find_root(path, policy) is None:
        raise _forbidden(place)
    return path


def _resolve_links(path: Path, place: str) -> Path:
    try:
        return Path(os.path.realpath(path))
    except OSError as error:
        # A link disappeared while it was followed. Its target is unknown and must not be revealed.
        raise _forbidden(place) from error


def _expand_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def parse_path(place: str) -> str:
    """Return the path of a `file://` URL, or the place itself if it is a path."""
    if not place.lower().startswith("file:"):
        return place
    url = urlsplit(place)
    if url.netloc not in ("", "localhost"):
        raise FetchForbiddenError(f"Files of another machine ({url.netloc}) cannot be read: copy the file here.")
    # A question mark or a number sign that is not encoded belongs to the file name.
    rest = f"?{url.query}" if url.query else ""
    rest += f"#{url.fragment}" if url.fragment else ""
    return os.fsdecode(unquote_to_bytes(url.path + rest))


def _find_root(path: Path, policy: FetchPolicy) -> Path | None:
    """Return the allowed folder that contains a path without links."""
    roots = (Path(os.path.realpath(root)) for root in policy.paths)
    return next((root for root in roots if path.is_relative_to(root)), None)


def _forbidden(place: str) -> FetchForbiddenError:
    return FetchForbiddenError(
        f"{place} may not be read. The operator of REM can allow a folder with INGEST__PATHS; or upload the file."
    )


@contextmanager
def _opened(path: Path, policy: FetchPolicy) -> Iterator[int]:
    """Open a regular file or a folder, and nothing else. Yield its descriptor."""
    try:
        descriptor = _open(path, policy)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileMissingError(f"There is no file {path}.") from error
    except OSError as error:
        raise FileUnreadableError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open(path: Path, policy: FetchPolicy) -> int:
    if policy.is_unrestricted:
        # Check before opening: opening a device can already have an effect.
        _check_file_type(path.stat().st_mode, path)
        descriptor = os.open(path, _OPEN_FLAGS)
    else:
        descriptor = _open_below_root(path, policy)
    try:
        _check_file_type(os.fstat(descriptor).st_mode, path)
    except FileUnreadableError:
        os.close(descriptor)
        raise
    return descriptor


def _open_below_root(path: Path, policy: FetchPolicy) -> int:
    """Open each folder of the path in turn without following links, which may have been created since the check."""
    root = _find_root(path, policy)
    if root is None:
        raise _forbidden(str(path))
    folder = os.open(root, _OPEN_FLAGS | os.O_DIRECTORY)
    for part in path.relative_to(root).parts:
        try:
            descriptor = os.open(part, _OPEN_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP or _is_link(part, folder):
                raise _forbidden(str(path)) from error
            raise
        finally:
            os.close(folder)
        folder = descriptor
    return folder


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _check_file_type(mode: int, path: Path) -> None:
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise FileUnreadableError(f"{path} is not a regular file but a pipe, socket or device.")


def _read(descriptor: int, path: Path, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    remaining = max_bytes
    # The size is checked while reading, too: a file may grow, and some report no size.
    if os.fstat(descriptor).st_size > max_bytes:
        remaining = -1
    while remaining >= 0:
        try:
            part = os.read(descriptor, min(READ_BYTES, remaining + 1))
        except OSError as error:
            raise FileUnreadableError(f"{path} cannot be read: {error.strerror}.") from error
        if not part:
            return b"".join(parts)
        parts.append(part)
        remaining -= len(part)
    raise FileTooLargeError(f"{path} is larger than {max_bytes:,} bytes (INGEST__MAX_BYTES): split it.")


def _add_file(listing: Listing, links: list[Path], folder: Path, below: Path, folder_descriptor: int) -> None:
    """Add a regular file to the listing, or a link to `links`."""
    try:
        mode = os.stat(below.name, dir_fd=folder_descriptor, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            links.append(below)
        elif stat.S_ISREG(mode):
            listing.sources.append(_make_source(folder, below, folder / below))
        else:
            listing.ignored["special"] += 1
    except OSError as error:
        listing.errors.append((_display_name(folder, below), f"cannot be read: {error.strerror}"))


def _make_source(folder: Path, below: Path, path: Path) -> FileSource:
    return FileSource(path.as_uri(), _display_name(folder, below))


def _display_name(folder: Path, below: Path) -> str:
    # File names are bytes and need not be valid UTF-8.
    return os.fsencode(Path(folder.name) / below).decode(errors="replace")


def _add_error(listing: Listing, folder: Path, error: OSError) -> None:
    name = _display_name(folder, Path(str(error.filename or "")))
    listing.errors.append((name, f"cannot be read: {error.strerror}"))


def _add_links(listing: Listing, folder: Path, links: list[Path]) -> None:
    """Add links to files inside the folder that are not listed themselves. Count the other links as ignored."""
    listed = {source.uri for source in listing.sources}
    for below in links:
        target = _find_link_target(folder, below)
        if target is None or target.as_uri() in listed:
            listing.ignored["link"] += 1
            continue
        listed.add(target.as_uri())
        listing.sources.append(_make_source(folder, below, target))


def _find_link_target(folder: Path, below: Path) -> Path | None:
    """Return the file inside the folder that a link leads to; None if there is none."""
    try:
        target = Path(os.path.realpath(folder / below))
        return target if target.is_relative_to(folder) and target.is_file() else None
    except OSError:
        return None
