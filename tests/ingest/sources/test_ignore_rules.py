"""Listings honour .gitignore files and patterns to exclude, skip environments and caches, and count what they skip."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from pathspec import GitIgnoreSpec

from rem.errors import InvalidInputError
from rem.ingest.models import Listing
from rem.ingest.sources.fetch import list_sources
from rem.ingest.sources.ignore_rules import ListingOptions, compile_excluded
from rem.ingest.sources.policy import UNRESTRICTED
from rem.settings import IngestSettings

_SETTINGS = IngestSettings()


def make_files(folder: Path, *names: str, **texts: str) -> Path:
    """Create files in a folder; a name may contain folders."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x", encoding="utf-8")
    return folder


async def list_folder(folder: Path, **options: object) -> Listing:
    return await list_sources(str(folder), UNRESTRICTED, _SETTINGS, ListingOptions(**options))  # type: ignore[arg-type]


def names_of(listing: Listing, folder: Path) -> list[str]:
    return [source.name.removeprefix(f"{folder.name}/") for source in listing.sources]


async def test_gitignore_of_the_folder_and_of_subfolders_count(tmp_path: Path) -> None:
    make_files(tmp_path, "a.md", "a.log", "keep.log", "build/x.md", "sub/b.md", "sub/only.md", "sub/deep/only.md")
    make_files(tmp_path, "sub/again.log", "other/build/y.md")
    (tmp_path / ".gitignore").write_text("# comment\n*.log\n!keep.log\n/build/\n!\n", encoding="utf-8")
    (tmp_path / "sub" / ".gitignore").write_text("/only.md\n!again.log\n", encoding="utf-8")
    listing = await list_folder(tmp_path)
    assert names_of(listing, tmp_path) == [
        "a.md",
        "keep.log",
        "other/build/y.md",
        "sub/again.log",
        "sub/b.md",
        "sub/deep/only.md",
    ]
    assert listing.ignored == {"gitignore": 3, "hidden": 2}
    assert len((await list_folder(tmp_path, use_ignore_files=False)).sources) == 9


async def test_gitignore_above_the_folder_counts_within_a_repository(tmp_path: Path) -> None:
    make_files(tmp_path, "repo/.git/HEAD", "repo/docs/a.md", "repo/docs/draft/b.md", "repo/out/c.md")
    (tmp_path / ".gitignore").write_text("*.md\n", encoding="utf-8")  # above the repository
    (tmp_path / "repo" / ".gitignore").write_text("docs/draft\nout/\n", encoding="utf-8")
    docs = tmp_path / "repo" / "docs"
    assert names_of(await list_folder(docs), docs) == ["a.md"]
    # Whoever names an ignored folder wants to read it.
    out = tmp_path / "repo" / "out"
    assert names_of(await list_folder(out), out) == ["c.md"]


async def test_environments_and_caches_are_skipped_by_name_and_content(tmp_path: Path) -> None:
    make_files(tmp_path, "a.md", "env/pyvenv.cfg", "env/lib/x.py", "conda/conda-meta/history", "conda/x.py")
    make_files(tmp_path, "node_modules/x.js", "deep/__pycache__/x.py", "target/CACHEDIR.TAG", "target/x.md")
    make_files(tmp_path, ".venv/x.py", ".mypy_cache/x.json")
    listing = await list_folder(tmp_path)
    assert names_of(listing, tmp_path) == ["a.md"]
    assert listing.ignored == {"environment": 2, "cache": 3, "hidden": 2}
    everything = names_of(await list_folder(tmp_path, use_ignore_files=False), tmp_path)
    assert {"env/lib/x.py", "node_modules/x.js", "target/x.md"} <= set(everything)
    assert not any(name.startswith(".") for name in everything)
    # An environment that is named itself is read.
    assert "lib/x.py" in names_of(await list_folder(tmp_path / "env"), tmp_path / "env")


async def test_excluded_patterns_are_relative_to_the_folder(tmp_path: Path) -> None:
    make_files(tmp_path, "a.md", "a.tmp", "draft/b.md", "deep/draft/c.md", "deep/d.md")
    listing = await list_folder(tmp_path, exclude=("*.tmp", "/draft/"))
    assert names_of(listing, tmp_path) == ["a.md", "deep/d.md", "deep/draft/c.md"]
    assert listing.ignored == {"excluded": 2}
    # With `notes/*` a shell names the files one by one.
    single = await list_sources(str(tmp_path / "a.tmp"), UNRESTRICTED, _SETTINGS, ListingOptions(("*.tmp",)))
    assert (single.sources, single.ignored) == ([], {"excluded": 1})


async def test_links_and_special_files_are_counted(tmp_path: Path) -> None:
    folder = make_files(tmp_path / "notes", "a.md")
    make_files(tmp_path, "outside.md")
    (folder / "same.md").symlink_to(folder / "a.md")
    (folder / "out.md").symlink_to(tmp_path / "outside.md")
    (folder / "dangling.md").symlink_to(folder / "nothing.md")
    (folder / "loop").symlink_to(folder)
    (folder / "circle.md").symlink_to(folder / "circle.md")
    os.mkfifo(folder / "pipe.md")
    listing = await list_folder(folder)
    assert names_of(listing, folder) == ["a.md"]
    assert listing.ignored == {"link": 5, "special": 1}
    assert not listing.errors


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "binary", "huge"])
async def test_odd_gitignore_does_no_harm(tmp_path: Path, kind: str) -> None:
    folder = make_files(tmp_path / "notes", "a.md")
    make_files(tmp_path, "rules")
    (tmp_path / "rules").write_text("*.md\n", encoding="utf-8")
    path = folder / ".gitignore"
    match kind:
        case "link":  # Git does not follow it either
            path.symlink_to(tmp_path / "rules")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "binary":
            path.write_bytes(bytes(range(256)))
        case "huge":
            path.write_text("nothing\n" * 200_000, encoding="utf-8")
    assert names_of(await list_folder(folder), folder) == ["a.md"]


async def test_invalid_pattern_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="not valid"):
        ListingOptions(exclude=("!",))


@pytest.mark.parametrize(
    ("patterns", "name"),
    [
        ("*a" * 12 + "*b\n", "a" * 200 + ".md"),
        ("**/a/" * 8 + "b\n", "a/" * 60 + "x.md"),
        ("".join(f"*a*a*a*{number}\n" for number in range(100)), "a" * 200 + ".md"),
    ],
)
async def test_wildcards_take_no_time(tmp_path: Path, patterns: str, name: str) -> None:
    make_files(tmp_path, name)
    (tmp_path / ".gitignore").write_text(patterns, encoding="utf-8")
    started = time.process_time()
    listing = await list_folder(tmp_path, exclude=tuple(patterns.splitlines()))
    assert time.process_time() - started < 2
    assert names_of(listing, tmp_path) == [name]


def test_patterns_match_the_same_paths_as_without_limits() -> None:
    chooser = random.Random(7)
    pieces = ["*", "**", "a", "b", "/", "/", "?", "[ab]", "\\[", "ab", "/**/", "**/"]
    paths = [
        "/".join("".join(chooser.choices("ab", k=chooser.randint(1, 4))) for _ in range(n % 6 + 1)) for n in range(60)
    ]
    matched = 0
    for _ in range(1500):
        lines = ["".join(chooser.choices(pieces, k=chooser.randint(1, 8))) for _ in range(2)]
        lines[1] = f"!{lines[1]}"
        try:
            expected = GitIgnoreSpec.from_lines(lines)
        except ValueError:
            continue
        spec = compile_excluded(lines)
        for path in paths:
            assert spec.check_file(path) == expected.check_file(path), (lines, path)
            matched += bool(expected.match_file(path))
    assert matched > 1000


@pytest.mark.parametrize("pattern", ["a[!b]c", "a[^]b]c", "a[+-9]c", "*a*[!b]c*"])
def test_set_of_characters_does_not_match_a_slash(pattern: str) -> None:
    spec = compile_excluded([pattern])
    assert not spec.match_file("a/c")
    assert spec.match_file("a0c")
    assert spec.match_file("x/a0c/y")


@pytest.mark.parametrize("text", ["x*\n" * 250_000, "*a" * 500_000, "?*\n" * 3000, "# why\n" + "[ab]" * 200])
async def test_too_long_gitignore_counts_in_part(tmp_path: Path, text: str) -> None:
    make_files(tmp_path, "sub/a.md", "sub/c.tmp")
    (tmp_path / "sub" / ".gitignore").write_text(f"*.tmp\n!a.md\n{text}".replace("?", "z"), encoding="utf-8")
    started = time.process_time()
    listing = await list_folder(tmp_path)
    assert time.process_time() - started < 3
    assert names_of(listing, tmp_path) == ["sub/a.md"]
    assert len(listing.notes) == 1
    assert listing.notes[0].startswith("sub/.gitignore is too long: only 2,000 patterns")


async def test_long_gitignore_of_comments_counts_in_full(tmp_path: Path) -> None:
    make_files(tmp_path, "a.md", "c.tmp")
    (tmp_path / ".gitignore").write_text("# a\n\n" * 3000 + "*.tmp\n", encoding="utf-8")
    listing = await list_folder(tmp_path)
    assert (names_of(listing, tmp_path), listing.notes) == (["a.md"], [])


@pytest.mark.parametrize(("patterns", "message"), [(("a",) * 2001, "2,001 patterns"), (("a" * 501,), "501 characters")])
def test_too_many_or_too_long_patterns_to_exclude_are_errors(patterns: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ListingOptions(exclude=patterns)
