"""IgnoreRules: which files and folders a listing leaves out, and why."""

from __future__ import annotations

import os
import posixpath
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pathspec import GitIgnoreSpec

from rem.ingest.sources.ignore_patterns import MAX_IGNORE_FILE_BYTES, compile_excluded, compile_ignore_file
from rem.text import clean_text

IgnoreReason: TypeAlias = Literal["hidden", "gitignore", "environment", "cache", "excluded", "link", "special"]
"""Why a listing leaves out a file or folder. Link: it leads out of the folder, to a folder, or to a listed file."""
_CACHE_FOLDERS = frozenset({"__pycache__", "__pypackages__", "bower_components", "node_modules"})
_ENVIRONMENT_MARKERS = ("pyvenv.cfg", "conda-meta/history")
_CACHE_MARKER = "CACHEDIR.TAG"


@dataclass(frozen=True, slots=True)
class ListingOptions:
    """What a listing of a folder contains."""

    exclude: tuple[str, ...] = ()
    """Patterns in the syntax of `.gitignore`, relative to the listed folder."""
    use_ignore_files: bool = True
    """`.gitignore` files count, and virtual environments and caches are left out. Hidden files always are."""
    recursive: bool = True

    def __post_init__(self) -> None:
        compile_excluded(self.exclude)


@dataclass(frozen=True, slots=True)
class _IgnoreFile:
    """The patterns of one `.gitignore`."""

    spec: GitIgnoreSpec
    folder: str
    """The folder of the file below the listed folder, with a slash at the end; empty for the listed folder."""
    prefix: str = ""
    """The path from the folder of the file to the listed folder, if the file is above it."""

    def decides(self, path: str) -> bool | None:
        """Return whether a path below the listed folder is ignored. None if no pattern matches it."""
        return self.spec.check_file(self.prefix + path.removeprefix(self.folder)).include


class IgnoreRules:
    """The rules for one listing. Paths are relative to the listed folder and have slashes."""

    def __init__(self, options: ListingOptions) -> None:
        self._use_ignore_files = options.use_ignore_files
        self._excluded = compile_excluded(options.exclude)
        self.notes: list[str] = []
        """Which `.gitignore` files count only in part, in sentences."""
        self._files_by_folder: dict[str, tuple[_IgnoreFile, ...]] = {"": ()}

    def load_parents(self, folder: Path) -> None:
        """Read the `.gitignore` files above a listed folder, up to the root of its Git repository.

        They do not count for a folder that they ignore itself, because the caller has named it.
        """
        root = next((parent for parent in folder.parents if (parent / ".git").exists()), None)
        if not self._use_ignore_files or root is None or (folder / ".git").exists():
            return
        files: list[_IgnoreFile] = []
        for parent in reversed([parent for parent in folder.parents if parent.is_relative_to(root)]):
            spec = self._read_patterns(parent / ".gitignore", None, str(parent / ".gitignore"))
            if spec is not None:
                files.append(_IgnoreFile(spec, "", f"{folder.relative_to(parent).as_posix()}/"))
        if not any(file.decides("") for file in files):
            self._files_by_folder[""] = tuple(files)

    def enter(self, folder: str, descriptor: int) -> None:
        """Read the `.gitignore` of a folder. Folders must be entered before their subfolders."""
        inherited = self._files_by_folder[posixpath.dirname(folder)] if folder else self._files_by_folder[""]
        below = f"{folder}/" if folder else ""
        own = None
        if self._use_ignore_files:
            own = self._read_patterns(Path(".gitignore"), descriptor, f"{below}.gitignore")
        self._files_by_folder[folder] = (*inherited, _IgnoreFile(own, below)) if own else inherited

    def check(self, path: str, *, is_folder: bool = False) -> IgnoreReason | None:
        """Return why a file or folder is left out, by its path alone; None if it is listed."""
        name = posixpath.basename(path)
        if name.startswith("."):
            return "hidden"
        if is_folder and self._use_ignore_files and name in _CACHE_FOLDERS:
            return "cache"
        written = f"{path}/" if is_folder else path
        if self._excluded.match_file(written):
            return "excluded"
        return "gitignore" if self._is_git_ignored(written, posixpath.dirname(path)) else None

    def check_folder(self, path: str, parent_descriptor: int) -> IgnoreReason | None:
        """Return why a folder is left out, by its path or its contents; None if it is listed."""
        reason = self.check(path, is_folder=True)
        if reason is not None or not self._use_ignore_files:
            return reason
        name = posixpath.basename(path)
        if any(_is_file(f"{name}/{marker}", parent_descriptor) for marker in _ENVIRONMENT_MARKERS):
            return "environment"
        return "cache" if _is_file(f"{name}/{_CACHE_MARKER}", parent_descriptor) else None

    def check_path(self, path: str) -> IgnoreReason | None:
        """Return why a file or one of the folders above it is left out, by its path alone."""
        parts = path.split("/")
        folders = (self.check("/".join(parts[:count]), is_folder=True) for count in range(1, len(parts)))
        return next((reason for reason in folders if reason), None) or self.check(path)

    def excludes(self, name: str) -> bool:
        """Return whether a file that the caller has named is excluded by a pattern."""
        return self._excluded.match_file(name)

    def _read_patterns(self, path: Path, descriptor: int | None, name: str) -> GitIgnoreSpec | None:
        content = _read_file(path, descriptor)
        if content is None:
            return None
        spec, note = compile_ignore_file(content)
        if note is not None:
            self.notes.append(f"{clean_text(name)} is too long: {note}.")
        return spec

    def _is_git_ignored(self, path: str, folder: str) -> bool:
        # The pattern nearest to the file decides.
        files = self._files_by_folder.get(folder, ())
        return next((decision for file in reversed(files) if (decision := file.decides(path)) is not None), False)


def _read_file(path: Path, descriptor: int | None) -> bytes | None:
    """Return the beginning of a `.gitignore`; None if there is none that can be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
        try:
            return os.read(file, MAX_IGNORE_FILE_BYTES + 1) if stat.S_ISREG(os.fstat(file).st_mode) else None
        finally:
            os.close(file)
    except OSError:
        return None


def _is_file(path: str, descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(path, dir_fd=descriptor, follow_symlinks=False).st_mode)
    except OSError:
        return False
