"""Files of this machine, as far as the caller may read them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from rem.errors import FetchForbiddenError, FileMissingError, FileTooLargeError, FileUnreadableError, InvalidInputError
from rem.ingest.dates import convert_mtime
from rem.ingest.models import FetchedFile, FileSource, Listing, is_ignored
from rem.ingest.sources.policy import FetchPolicy
from rem.settings import IngestSettings

# Opening must never wait for a writer, take over a terminal, or follow a link that was not there when it was checked.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PART = 1 << 20


def read_local(place: str, reach: FetchPolicy, settings: IngestSettings) -> FetchedFile:
    """A file by its path or `file://` address."""
    path = resolve_path(place, reach)
    with _opened(path, reach) as descriptor:
        facts = os.fstat(descriptor)
        if stat.S_ISDIR(facts.st_mode):
            raise InvalidInputError(f"{path} is a folder: take in its files.")
        data = _content(descriptor, path, settings.max_bytes)
    return FetchedFile(_name(path, Path()), path.as_uri(), data, modified_at=convert_mtime(facts.st_mtime))


def is_folder(place: str, reach: FetchPolicy) -> bool:
    """Whether there is a folder at a place that may be read."""
    return resolve_path(place, reach).is_dir()


def list_local(place: str, reach: FetchPolicy) -> Listing:
    """The files below a folder, by name; hidden ones and what is no file are passed over."""
    folder = resolve_path(place, reach)
    found = Listing()
    links: list[Path] = []
    with _opened(folder, reach) as descriptor:
        walk = os.fwalk(
            ".", dir_fd=descriptor, follow_symlinks=False, onerror=lambda error: _report(found, folder, error)
        )
        for below, folders, files, here in walk:
            folders[:] = sorted(name for name in folders if not is_ignored(name))
            for name in sorted(files):
                if not is_ignored(name):
                    _list(found, links, folder, Path(below) / name, here)
    _add_links(found, folder, links)
    found.sources.sort(key=lambda source: source.name)
    return found


def resolve_path(place: str, reach: FetchPolicy) -> Path:
    """The file that a path means, past all links. A FetchForbiddenError does not tell whether there is one."""
    text = _path_of(place)
    if "\0" in text or not text.strip():
        raise InvalidInputError("The path is empty or has a zero byte in it.")
    written = Path(text)
    if reach.is_everywhere:
        return _resolved(_at_home(written), place)
    path = _resolved(written, place)
    if _root(path, reach) is None:
        raise _forbidden(place)
    return path


def _resolved(path: Path, place: str) -> Path:
    try:
        return Path(os.path.realpath(path))
    except OSError as error:
        # A link that vanished while it was being followed. What was behind it is not known, and not told.
        raise _forbidden(place) from error


def _at_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def _path_of(place: str) -> str:
    if not place.lower().startswith("file:"):
        return place
    parts = urlsplit(place)
    if parts.netloc not in ("", "localhost"):
        raise FetchForbiddenError(f"Files of another machine ({parts.netloc}) are not read: copy the file here.")
    # A question mark or a number sign that was not encoded belongs to the name.
    rest = f"?{parts.query}" if parts.query else ""
    rest += f"#{parts.fragment}" if parts.fragment else ""
    return os.fsdecode(unquote_to_bytes(parts.path + rest))


def _root(path: Path, reach: FetchPolicy) -> Path | None:
    """The allowed folder that a path without links lies in."""
    roots = (Path(os.path.realpath(root)) for root in reach.paths)
    return next((root for root in roots if path.is_relative_to(root)), None)


def _forbidden(place: str) -> FetchForbiddenError:
    return FetchForbiddenError(
        f"{place} may not be read. Whoever runs REM can allow a folder with INGEST__PATHS; or upload the file."
    )


@contextmanager
def _opened(path: Path, reach: FetchPolicy) -> Iterator[int]:
    """A file or folder, open; nothing else is ever opened."""
    try:
        descriptor = _open(path, reach)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileMissingError(f"There is no file {path}.") from error
    except OSError as error:
        raise FileUnreadableError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open(path: Path, reach: FetchPolicy) -> int:
    if reach.is_everywhere:
        # Opening a device may already do something.
        _check_kind(path.stat().st_mode, path)
        descriptor = os.open(path, _FLAGS)
    else:
        descriptor = _open_below(path, reach)
    try:
        _check_kind(os.fstat(descriptor).st_mode, path)
    except FileUnreadableError:
        os.close(descriptor)
        raise
    return descriptor


def _open_below(path: Path, reach: FetchPolicy) -> int:
    """Open step by step without following any link: the path had none when it was checked."""
    root = _root(path, reach)
    if root is None:
        raise _forbidden(str(path))
    here = os.open(root, _FLAGS | os.O_DIRECTORY)
    for part in path.relative_to(root).parts:
        try:
            there = os.open(part, _FLAGS | os.O_NOFOLLOW, dir_fd=here)
        except OSError as error:
            # It may be none any more.
            if error.errno == errno.ELOOP or _is_link(part, here):
                raise _forbidden(str(path)) from error
            raise
        finally:
            os.close(here)
        here = there
    return here


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _check_kind(mode: int, path: Path) -> None:
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise FileUnreadableError(f"{path} is no file but a pipe, socket or device.")


def _content(descriptor: int, path: Path, most: int) -> bytes:
    parts: list[bytes] = []
    room = most
    # A file may grow while it is read, and some say they have no length.
    if os.fstat(descriptor).st_size > most:
        room = -1
    while room >= 0:
        try:
            part = os.read(descriptor, min(_PART, room + 1))
        except OSError as error:
            raise FileUnreadableError(f"{path} cannot be read: {error.strerror}.") from error
        if not part:
            return b"".join(parts)
        parts.append(part)
        room -= len(part)
    raise FileTooLargeError(f"{path} is larger than {most:,} bytes (INGEST__MAX_BYTES): take in a smaller part.")


def _list(found: Listing, links: list[Path], folder: Path, below: Path, here: int) -> None:
    try:
        mode = os.stat(below.name, dir_fd=here, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            links.append(below)
        elif stat.S_ISREG(mode):
            found.sources.append(_source(folder, below, folder / below))
    except OSError as error:
        found.problems.append((_name(folder, below), f"cannot be read: {error.strerror}"))


def _source(folder: Path, below: Path, path: Path) -> FileSource:
    return FileSource(path.as_uri(), _name(folder, below))


def _name(folder: Path, below: Path) -> str:
    # File names are bytes; those that are no UTF-8 must not spoil a text.
    return os.fsencode(Path(folder.name) / below).decode(errors="replace")


def _report(found: Listing, folder: Path, error: OSError) -> None:
    found.problems.append((_name(folder, Path(str(error.filename or ""))), f"cannot be read: {error.strerror}"))


def _add_links(found: Listing, folder: Path, links: list[Path]) -> None:
    """Links to a file of the folder that is not listed itself. What leaves the folder does not belong to it."""
    listed = {source.uri for source in found.sources}
    for below in links:
        try:
            target = Path(os.path.realpath(folder / below))
        except OSError:
            continue
        if target.is_relative_to(folder) and target.is_file() and target.as_uri() not in listed:
            listed.add(target.as_uri())
            found.sources.append(_source(folder, below, target))
