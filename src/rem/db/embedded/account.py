"""The system user of the embedded server: the caller, or an ordinary user if the caller is root."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from rem.errors import EmbeddedServerError

if sys.platform != "win32":  # EmbeddedServer raises an error there
    import pwd


@dataclass(frozen=True)
class Account:
    """A system user. `groups` is None if it is the caller."""

    uid: int
    gid: int
    name: str
    groups: tuple[int, ...] | None = None


def choose_server_account(run_as: str) -> Account:
    """Return the caller, or `run_as` if the caller is root, because PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), _get_user_name(os.geteuid()))
    try:
        entry = pwd.getpwnam(run_as)
    except KeyError:
        entry = None
    if entry is None or entry.pw_uid == 0:
        reason = "is root, too" if entry else "does not exist"
        raise EmbeddedServerError(
            f"PostgreSQL refuses to run as root, and the user {run_as!r}, which should run it, {reason}. "
            "Set POSTGRES__RUN_AS to an ordinary user of this machine, or run REM as one."
        )
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Account(entry.pw_uid, entry.pw_gid, entry.pw_name, groups)


def give_to_account(path: Path, account: Account) -> None:
    """Change the owner of a path from root to the account. Raise an error if it belongs to another user."""
    owner = path.stat().st_uid
    if owner == account.uid:
        return
    # Never through a link: another user could have created it.
    if owner != 0 or account.groups is None or path.is_symlink():
        raise EmbeddedServerError(describe_foreign_owner(path, owner, account))
    os.chown(path, account.uid, account.gid, follow_symlinks=False)


def describe_foreign_owner(path: Path, owner: int, account: Account) -> str:
    """Return the error message for a path that belongs to another user."""
    name = _get_user_name(owner)
    if account.groups is None or owner == 0:
        advice = f"Run REM as {name}, set REM_HOME to a folder of yours, or: chown -R {account.name} {path}"
    else:
        advice = f"Set POSTGRES__RUN_AS={name}, run REM as {name}, or: chown -R {account.name} {path}"
    return f"{path} belongs to {name}, but PostgreSQL runs as {account.name}. {advice}"


def _get_user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
