"""A process that dreams, to be killed: `python -m tests.dreams.dream_process DSN HOME USER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from pydantic import SecretStr

from rem.app import Rem
from rem.context import Scope
from rem.settings import PostgresSettings, Settings


async def main(dsn: str, home: str, user: str) -> None:
    """Print "begins", dream, and print "done"."""
    settings = Settings(rem_home=Path(home), postgres=PostgresSettings(connection_string=SecretStr(dsn)))
    async with Rem.open(settings) as rem:
        await rem.check_models()
        print("begins", flush=True)
        await rem.dreamer().dream(Scope.for_user(user), ["moments", "affinity"])
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
