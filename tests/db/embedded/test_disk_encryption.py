"""Find out whether the volume of the data folder is encrypted."""

from __future__ import annotations

from pathlib import Path

import pytest

from rem.db.embedded.disk_encryption import Mount, describe_disk_encryption, describe_mount, find_mount

TABLE = r"""
21 1 254:0 / / rw,relatime - ext4 /dev/vda rw
22 21 253:1 / /home rw,relatime shared:1 - ext4 /dev/mapper/home rw
23 22 0:50 / /home/ana/My\040vault rw - fuse.gocryptfs /home/ana/cipher rw
24 21 0:31 /@data /data rw - btrfs /dev/mapper/data rw
25 21 0:40 / /container rw - overlay overlay rw
a line that is not one
"""


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """Make a copy of what the kernel shows below /sys."""
    (tmp_path / "dev" / "block").mkdir(parents=True)
    (tmp_path / "class" / "block").mkdir(parents=True)
    return tmp_path


def add_device(system: Path, name: str, number: str, uuid: str | None = None, below: tuple[str, ...] = ()) -> None:
    """Add a block device, which stands on the devices `below`."""
    device = system / "devices" / name
    (device / "slaves").mkdir(parents=True)
    (device / "dev").write_text(f"{number}\n")
    if uuid is not None:
        (device / "dm").mkdir()
        (device / "dm" / "uuid").write_text(f"{uuid}\n")
    for other in below:
        (device / "slaves" / other).symlink_to(system / "devices" / other)
    (system / "dev" / "block" / number).symlink_to(device)
    (system / "class" / "block" / name).symlink_to(device)


@pytest.mark.parametrize(
    ("folder", "mounted_at"),
    [("/srv/rem", "/"), ("/home", "/home"), ("/homes/x", "/"), ("/home/ana/My vault/rem", "/home/ana/My vault")],
)
def test_mount_of_a_folder_is_found(folder: str, mounted_at: str) -> None:
    mount = find_mount(Path(folder), TABLE)
    assert mount is not None
    assert mount.folder == mounted_at


def test_encrypted_devices_are_found(system: Path) -> None:
    add_device(system, "sda1", "8:1")
    add_device(system, "dm-0", "253:0", "CRYPT-LUKS2-0123-luks", ("sda1",))
    add_device(system, "dm-1", "253:1", "LVM-abc", ("dm-0",))
    add_device(system, "dm-2", "253:2", "LVM-def", ("dm-0", "sda1"))
    for number, words in (
        ("253:0", "encrypted disk (dm-crypt)"),
        ("253:1", "encrypted disk (dm-crypt)"),
        # A part of this volume is on a partition that is not encrypted.
        ("253:2", "disk not encrypted by this machine"),
        ("8:1", "disk not encrypted by this machine"),
        ("9:9", "disk encryption not known (ext4)"),
    ):
        assert describe_mount(Mount(number, "/home", "ext4", "/dev/x"), system) == words


def test_file_systems_with_numbers_of_their_own(system: Path) -> None:
    add_device(system, "sda1", "8:1")
    add_device(system, "data", "253:5", "CRYPT-LUKS2-4567-data", ("sda1",))
    described = {
        folder: describe_mount(mount, system)
        for folder in ("/data/rem", "/home/ana/My vault", "/container/x")
        if (mount := find_mount(Path(folder), TABLE)) is not None
    }
    assert described == {
        "/data/rem": "encrypted disk (dm-crypt)",
        "/home/ana/My vault": "encrypted disk (gocryptfs)",
        "/container/x": "disk encryption not known (overlay)",
    }


def test_this_machine_gets_an_answer(tmp_path: Path) -> None:
    assert "disk" in describe_disk_encryption(tmp_path)
