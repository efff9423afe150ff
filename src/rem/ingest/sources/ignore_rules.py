"""IgnoreRules: which files and folders a listing leaves out, and why."""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from rem.errors import InvalidInputError
from rem.text import clean_text

IgnoreReason: TypeAlias = Literal["hidden", "gitignore", "environment", "cache", "excluded", "link", "special"]
"""Why a listing leaves out a file or folder. Link: it leads out of the folder, to a folder, or to a listed file."""
_CACHE_FOLDERS = frozenset({"__pycache__", "__pypackages__", "bower_components", "node_modules"})
_ENVIRONMENT_MARKERS = ("pyvenv.cfg", "conda-meta/history")
_CACHE_MARKER = "CACHEDIR.TAG"
MAX_IGNORE_FILE_BYTES = 200_000
MAX_PATTERNS = 2_000
"""In one `.gitignore`, and for one listing."""
MAX_PATTERN_CHARS = 500
_STAR = "[^/]*"
_FOLDERS = "(?:.+/)?"
_FOLDERS_BEHIND_SLASH = "(?:/.+)?/"
_NO_SLASH = "(?!/)"
_ESCAPE_OR_SET = re.compile(r"\\.|\[\^/\]|(\[\^?\]?[^\]]{0,500}\])", re.DOTALL)


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


class _Pattern(GitIgnoreSpecPattern):
    """A pattern whose regular expression does not try all ways to divide a path among its wildcards."""

    __slots__ = ()

    @classmethod
    def pattern_to_regex(cls, pattern: str) -> tuple[str | None, bool | None]:  # type: ignore[override]
        regex, include = super().pattern_to_regex(pattern)
        return None if regex is None else _limit_backtracking(regex), include


def compile_excluded(patterns: Sequence[str]) -> GitIgnoreSpec:
    """Return the patterns that a caller has given. Raise InvalidInputError if one is not valid."""
    if len(patterns) > MAX_PATTERNS:
        raise InvalidInputError(
            f"There are {len(patterns):,} patterns to exclude. At most {MAX_PATTERNS:,} are allowed."
        )
    too_long = next((pattern for pattern in patterns if len(pattern) > MAX_PATTERN_CHARS), None)
    if too_long is not None:
        raise InvalidInputError(
            f"A pattern to exclude has {len(too_long):,} characters. At most {MAX_PATTERN_CHARS} are allowed: shorten "
            f"{too_long[:20]}…"
        )
    try:
        return _make_spec(_Pattern(pattern) for pattern in patterns)
    except ValueError as error:
        raise InvalidInputError(f"A pattern to exclude is not valid: {error}. Write it as in .gitignore.") from error


def compile_ignore_file(content: bytes) -> tuple[GitIgnoreSpec, str | None]:
    """Return the patterns of a `.gitignore`, and what was left out of it, if it is too long.

    Invalid lines do not count: Git skips them, too.
    """
    text = content[:MAX_IGNORE_FILE_BYTES].decode("utf-8-sig", errors="replace")
    lines = text.splitlines()
    if len(content) > MAX_IGNORE_FILE_BYTES:
        lines = lines[:-1]  # A part of a line could ignore more than the line.
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    used = [line for line in lines if len(line) <= MAX_PATTERN_CHARS][:MAX_PATTERNS]
    is_complete = len(used) == len(lines) and len(content) <= MAX_IGNORE_FILE_BYTES
    spec = _make_spec(pattern for line in used if (pattern := _try_pattern(line)) is not None)
    note = (
        f"only {MAX_PATTERNS:,} patterns with up to {MAX_PATTERN_CHARS} characters, in the first "
        f"{MAX_IGNORE_FILE_BYTES // 1000} KB, count"
    )
    return spec, None if is_complete else note


def _make_spec(patterns: Iterable[_Pattern]) -> GitIgnoreSpec:
    # Another backend, if it is installed, may not know atomic groups.
    return GitIgnoreSpec(list(patterns), backend="simple")


def _try_pattern(line: str) -> _Pattern | None:
    try:
        return _Pattern(line)
    except ValueError:
        return None


def _limit_backtracking(regex: str) -> str:
    """Return a regular expression for the same paths, in which only the last wildcard is tried in several ways.

    If the text behind a wildcard ends before another wildcard of the same kind, then its first occurrence is as good as
    any later one: the next wildcard can skip the rest. So a match of it is final, and `*a*a*a*b` takes linear time.
    """
    # As in Git, a set of characters such as [!a] does not match a slash.
    regex = _ESCAPE_OR_SET.sub(lambda match: f"{_NO_SLASH if match[1] else ''}{match[0]}", regex)
    first, *stars = regex.replace(_FOLDERS_BEHIND_SLASH, f"/{_FOLDERS}").split(_STAR)
    for number, text in enumerate(stars, 1):
        # A slash that is matched ends the segment of a star.
        is_final = number < len(stars) and "/" not in text.replace("[^/]", "").replace(_NO_SLASH, "")
        first += f"(?>{_STAR}?{text})" if is_final else _STAR + text
    start, *folders = first.split(_FOLDERS)
    for number, text in enumerate(folders, 1):
        start += f"(?>(?:[^/]+/)*?{text})" if number < len(folders) else _FOLDERS + text
    return start
