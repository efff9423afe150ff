"""`postmaster.pid`: what a PostgreSQL server says about itself in its data folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True)
class Address:
    """Where a server listens."""

    socket_dir: Path
    port: int
    user: str = "rem"
    database: str = "rem"

    @property
    def socket(self) -> Path:
        """The socket itself."""
        return self.socket_dir / f".s.PGSQL.{self.port}"

    def dsn(self) -> str:
        """A connection string for asyncpg, psycopg and psql."""
        host = quote(str(self.socket_dir), safe="/")
        return f"postgresql:///{quote(self.database)}?host={host}&port={self.port}&user={quote(self.user)}"


@dataclass(frozen=True)
class PidFile:
    """The pid file of a server that runs, or ran and could not remove it."""

    pid: int
    started: int
    address: Address | None
    status: str


def read_pid_file(data_dir: Path) -> PidFile | None:
    """The pid file of a data folder; `address` is missing until the server has told it."""
    try:
        lines = (data_dir / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
        # Single-user mode writes its pid negated.
        pid = abs(int(lines[0]))
    except (FileNotFoundError, NotADirectoryError, IndexError, ValueError):
        return None
    complete = len(lines) >= 5 and lines[3].strip().isdigit() and bool(lines[4])
    return PidFile(
        pid=pid,
        started=int(lines[2]) if len(lines) >= 3 and lines[2].strip().isdigit() else 0,
        address=Address(Path(lines[4]), int(lines[3])) if complete else None,
        status=lines[7].strip() if len(lines) >= 8 else "",
    )
