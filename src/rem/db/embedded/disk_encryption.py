"""Find out whether the volume of a folder is encrypted, as far as the system tells it without special rights."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ENCRYPTING_FILE_SYSTEMS = frozenset({"ecryptfs", "fuse.gocryptfs", "fuse.encfs", "fuse.cryfs"})
COMMAND_SECONDS = 5.0
_ESCAPED = re.compile(r"\\([0-7]{3})")
"""A space or another special character in a path of mountinfo."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system."""

    device: str
    """Major and minor number, such as 253:0."""
    folder: str
    file_system: str
    source: str


def describe_disk_encryption(folder: Path) -> str:
    """Return a few words on the encryption of a folder's volume, such as `encrypted disk (dm-crypt)`."""
    if sys.platform == "darwin":
        return _describe_file_vault()
    try:
        mount = find_mount(folder, Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        mount = None
    return "disk encryption not known" if mount is None else describe_mount(mount, Path("/sys"))


def find_mount(folder: Path, mountinfo: str) -> Mount | None:
    """Return the mount that a folder is on. `mountinfo` is the table of the kernel (proc_pid_mountinfo(5))."""
    place = os.path.realpath(folder)
    found: Mount | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, details = before.split(), after.split()
        if len(fields) < 5 or len(details) < 2:
            continue
        mount = Mount(fields[2], _unescape(fields[4]), details[0], _unescape(details[1]))
        is_above = place == mount.folder or place.startswith(mount.folder.rstrip("/") + "/")
        # Of two mounts on the same folder, the later one hides the other.
        if is_above and (found is None or len(mount.folder) >= len(found.folder)):
            found = mount
    return found


def describe_mount(mount: Mount, system_folder: Path) -> str:
    """Return a few words on the encryption of a mount. `system_folder` is `/sys`."""
    if mount.file_system in ENCRYPTING_FILE_SYSTEMS:
        return f"encrypted disk ({mount.file_system.removeprefix('fuse.')})"
    number = mount.device
    if number.startswith("0:"):
        # File systems such as Btrfs have a number of their own, and the device is their source.
        number = _read(system_folder / "class" / "block" / Path(mount.source).name / "dev")
    device = system_folder / "dev" / "block" / number
    if not number or not device.exists():
        return f"disk encryption not known ({mount.file_system})"
    return "encrypted disk (dm-crypt)" if _is_encrypted(device.resolve()) else "disk not encrypted by this machine"


def _is_encrypted(device: Path) -> bool:
    """Return whether a device, or all devices below it, are encrypted: LVM may stand on an encrypted partition."""
    if _read(device / "dm" / "uuid").startswith("CRYPT-"):
        return True
    below = sorted((device / "slaves").iterdir()) if (device / "slaves").is_dir() else []
    return bool(below) and all(_is_encrypted(part.resolve()) for part in below)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _unescape(path: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), path)


def _describe_file_vault() -> str:
    try:
        answer = subprocess.run(
            ["/usr/bin/fdesetup", "status"], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        answer = ""
    if "FileVault is On" in answer:
        return "encrypted disk (FileVault)"
    return "disk not encrypted (FileVault is off)" if "FileVault is Off" in answer else "disk encryption not known"
