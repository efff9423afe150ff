"""Note from which sources the web interface was built, so that a test without Node sees that the build is current."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
WEB = REPOSITORY / "web"
BUILT = REPOSITORY / "src" / "rem" / "api" / "web_dist"
MANIFEST = BUILT / "sources.sha256"
_TYPES = "src/api/types.ts"
"""Types are gone from the built files: a change of the API alone needs no new build."""


def list_sources() -> Iterator[Path]:
    """Yield the files that the build reads, in a fixed order."""
    for folder in ("src", "public"):
        yield from sorted(path for path in (WEB / folder).rglob("*") if path.is_file())
    yield from (
        WEB / name for name in ("index.html", "docs.html", "vite.config.ts", "tsconfig.json", "package-lock.json")
    )


def hash_sources() -> str:
    """Return a hash of the names and contents of all sources."""
    digest = hashlib.sha256()
    for path in list_sources():
        name = path.relative_to(WEB).as_posix()
        if name != _TYPES:
            digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


if __name__ == "__main__":
    MANIFEST.write_text(f"{hash_sources()}\n", encoding="utf-8")
