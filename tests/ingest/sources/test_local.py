"""Local files: only allowed paths are read, in any spelling, and nothing blocks."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from rem.errors import FetchForbiddenError, FileMissingError, FileTooLargeError, FileUnreadableError, InvalidInputError
from rem.ingest.sources.fetch import fetch_file, list_sources
from rem.ingest.sources.policy import UNRESTRICTED, FetchPolicy
from rem.settings import IngestSettings

_SETTINGS = IngestSettings()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that may be read, next to one that may not."""
    (tmp_path / "open" / "deep").mkdir(parents=True)
    (tmp_path / "open" / "a.txt").write_text("in the open")
    (tmp_path / "open" / "deep" / "b.md").write_text("# deep")
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "secret.txt").write_text("secret")
    (tmp_path / "open-not").mkdir()
    (tmp_path / "open-not" / "c.txt").write_text("a neighbour with a similar name")
    return tmp_path


def reach_of(folder: Path) -> FetchPolicy:
    return FetchPolicy(paths=(folder / "open",))


async def test_file_is_read_by_path_and_by_url(folder: Path) -> None:
    path = folder / "open" / "a.txt"
    by_path = await fetch_file(str(path), UNRESTRICTED, _SETTINGS)
    by_address = await fetch_file(path.as_uri(), UNRESTRICTED, _SETTINGS)
    assert by_path == by_address
    assert (by_path.name, by_path.uri, by_path.data) == ("a.txt", path.as_uri(), b"in the open")


async def test_different_spellings_of_a_path_have_one_uri(folder: Path) -> None:
    (folder / "link.txt").symlink_to(folder / "open" / "a.txt")
    crooked = await fetch_file(f"{folder}/open/../link.txt", UNRESTRICTED, _SETTINGS)
    assert crooked.uri == (folder / "open" / "a.txt").as_uri()


@pytest.mark.parametrize("name", ["with space.txt", "grüße.txt", "100%.txt", "a?b#c.txt", "日本.txt"])
async def test_unusual_names_survive_the_file_url(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    file = await fetch_file((tmp_path / name).as_uri(), UNRESTRICTED, _SETTINGS)
    assert file.name == name


async def test_name_that_is_not_utf8_is_read_and_displayed(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    (source,) = (await list_sources(str(tmp_path), UNRESTRICTED, _SETTINGS)).sources
    file = await fetch_file(source.uri, UNRESTRICTED, _SETTINGS)
    assert file.data == b"x"
    assert file.name == "caf\ufffd.txt"
    assert source.name == f"{tmp_path.name}/caf\ufffd.txt"


async def test_policy_limits_the_folders(folder: Path) -> None:
    assert (await fetch_file(str(folder / "open" / "deep" / "b.md"), reach_of(folder), _SETTINGS)).data == b"# deep"
    with pytest.raises(FetchForbiddenError, match="INGEST__PATHS"):
        await fetch_file(str(folder / "closed" / "secret.txt"), reach_of(folder), _SETTINGS)
    with pytest.raises(FetchForbiddenError):
        await fetch_file(str(folder / "open" / "a.txt"), FetchPolicy(), _SETTINGS)


@pytest.mark.parametrize(
    "place",
    [
        "{0}/open/../closed/secret.txt",
        "{0}/open/deep/../../closed/secret.txt",
        "{0}/open-not/c.txt",
        "{0}/open/way-out/secret.txt",
        "{0}/open/way-out.txt",
        "file://{0}/open/../closed/secret.txt",
        "file://{0}/open/%2e%2e/closed/secret.txt",
        "file://localhost{0}/open/way-out.txt",
        "FILE://{0}/closed/secret.txt",
        "~/.ssh/id_rsa",
        "/proc/self/environ",
        "/dev/stdin",
    ],
)
async def test_no_path_leads_out_of_the_allowed_folders(folder: Path, place: str) -> None:
    (folder / "open" / "way-out").symlink_to(folder / "closed")
    (folder / "open" / "way-out.txt").symlink_to(folder / "closed" / "secret.txt")
    with pytest.raises(FetchForbiddenError):
        await fetch_file(place.format(folder), reach_of(folder), _SETTINGS)


async def test_error_does_not_reveal_whether_a_forbidden_file_exists(folder: Path) -> None:
    (folder / "open" / "dangling.txt").symlink_to(folder / "closed" / "nothing.txt")
    messages = set()
    for name in ("closed/secret.txt", "closed/nothing.txt", "nowhere/secret.txt", "open/dangling.txt"):
        with pytest.raises(FetchForbiddenError) as error:
            await fetch_file(str(folder / name), reach_of(folder), _SETTINGS)
        messages.add(str(error.value).replace(str(folder / name), "X"))
    assert len(messages) == 1


async def test_link_created_after_the_check_is_not_followed(folder: Path) -> None:
    """Somebody changes the folder as fast as they can while it is read; the secret never comes out."""
    target = folder / "open" / "swapped"
    target.mkdir()
    (target / "secret.txt").write_text("harmless")
    aside = folder / "open" / "aside"
    stop = asyncio.Event()

    async def swap() -> None:
        while not stop.is_set():
            target.rename(aside)
            target.symlink_to(folder / "closed")
            await asyncio.sleep(0)
            target.unlink()
            aside.rename(target)
            await asyncio.sleep(0)

    swapping = asyncio.create_task(swap())
    seen = set()
    for _ in range(300):
        try:
            seen.add((await fetch_file(str(target / "secret.txt"), reach_of(folder), _SETTINGS)).data)
        except (FetchForbiddenError, FileMissingError) as error:
            seen.add(type(error).__name__.encode())
    stop.set()
    await swapping
    assert b"secret" not in seen


@pytest.mark.parametrize("reach_everywhere", [True, False])
async def test_pipes_sockets_and_devices_are_rejected_at_once(folder: Path, reach_everywhere: bool) -> None:
    os.mkfifo(folder / "open" / "pipe")
    here = socket.socket(socket.AF_UNIX)
    here.bind(str(folder / "open" / "socket"))
    reach = UNRESTRICTED if reach_everywhere else reach_of(folder)
    async with asyncio.timeout(5):
        for name in ("pipe", "socket"):
            with pytest.raises(FileUnreadableError):
                await fetch_file(str(folder / "open" / name), reach, _SETTINGS)
        with pytest.raises(FileUnreadableError, match="pipe, socket or device"):
            await fetch_file("/dev/zero", UNRESTRICTED, _SETTINGS)
    here.close()


async def test_huge_file_is_rejected_without_reading_it(tmp_path: Path) -> None:
    huge = tmp_path / "huge.txt"
    with huge.open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(FileTooLargeError, match=r"larger than 100,000,000 bytes \(INGEST__MAX_BYTES\)"):
        await fetch_file(str(huge), UNRESTRICTED, _SETTINGS)


async def test_file_that_reports_no_size_is_limited() -> None:
    """The files of /proc have a length of zero and a content all the same."""
    with pytest.raises(FileTooLargeError):
        await fetch_file("/proc/self/smaps", UNRESTRICTED, IngestSettings(max_bytes=1000))


@pytest.mark.parametrize("place", ["", " ", "a\0b", "file:///a%00b"])
async def test_invalid_path_is_rejected(place: str) -> None:
    with pytest.raises(InvalidInputError):
        await fetch_file(place, UNRESTRICTED, _SETTINGS)


@pytest.mark.parametrize(
    "place", ["ftp://host/x", "gopher://host/x", "data://x", "javascript://x", "jar://x", "\\\\host\\x://"]
)
async def test_other_schemes_are_rejected(place: str) -> None:
    with pytest.raises((FetchForbiddenError, FileMissingError)):
        await fetch_file(place, UNRESTRICTED, _SETTINGS)


async def test_files_of_another_machine_are_rejected() -> None:
    with pytest.raises(FetchForbiddenError, match="another machine"):
        await fetch_file("file://server/share/x.txt", UNRESTRICTED, _SETTINGS)


async def test_missing_file_and_folder_are_reported(folder: Path) -> None:
    with pytest.raises(FileMissingError, match="There is no file"):
        await fetch_file(str(folder / "open" / "none.txt"), reach_of(folder), _SETTINGS)
    with pytest.raises(FileMissingError):
        await fetch_file(str(folder / "open" / "a.txt" / "below"), UNRESTRICTED, _SETTINGS)
    with pytest.raises(InvalidInputError, match="is a folder"):
        await fetch_file(str(folder / "open"), UNRESTRICTED, _SETTINGS)


async def test_folder_lists_its_files_by_name(folder: Path) -> None:
    listing = await list_sources(f"{folder}/open/", reach_of(folder), _SETTINGS)
    assert [source.name for source in listing.sources] == ["open/a.txt", "open/deep/b.md"]
    files = [await fetch_file(source.uri, reach_of(folder), _SETTINGS, name=source.name) for source in listing.sources]
    assert [file.name for file in files] == ["open/a.txt", "open/deep/b.md"]
    assert not listing.errors


async def test_listing_ignores_hidden_files_and_tool_folders(folder: Path) -> None:
    place = folder / "open"
    for name in (".hidden", ".git/config", "node_modules/x.js", "__pycache__/x.pyc", "deep/.env"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("x")
    os.mkfifo(place / "pipe")
    (place / "out.txt").symlink_to(folder / "closed" / "secret.txt")
    (place / "out").symlink_to(folder / "closed")
    (place / "loop").symlink_to(place)
    (place / "same.txt").symlink_to(place / "a.txt")
    (place / "shown.txt").symlink_to(place / ".hidden")
    names = [source.name for source in (await list_sources(str(place), UNRESTRICTED, _SETTINGS)).sources]
    assert names == ["open/a.txt", "open/deep/b.md", "open/shown.txt"]


async def test_listing_of_a_forbidden_folder_is_rejected(folder: Path) -> None:
    (folder / "open" / "out").symlink_to(folder / "closed")
    for place in (folder / "closed", folder / "open" / "out", folder):
        with pytest.raises(FetchForbiddenError):
            await list_sources(str(place), reach_of(folder), _SETTINGS)


async def test_single_file_lists_itself(folder: Path) -> None:
    listing = await list_sources(str(folder / "open" / "a.txt"), UNRESTRICTED, _SETTINGS)
    assert [source.name for source in listing.sources] == ["a.txt"]
