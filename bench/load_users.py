"""The traffic of `make load`, for Locust, which runs this file in its own environment and process.

REM_LOAD_MIX has the weight of each kind of request, REM_LOAD_ROWS the number of rows, and REM_LOAD_OWNERS the number of
owners among whom they are distributed.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any
from uuid import uuid4

import gevent
from locust import FastHttpUser, constant, events

MIX: dict[str, int] = json.loads(os.environ["REM_LOAD_MIX"])
ROWS = int(os.environ["REM_LOAD_ROWS"])
OWNERS = int(os.environ["REM_LOAD_OWNERS"])
QUESTIONS = ("harbour ferry", "winter timetable", "old lighthouse keeper", "price of salt", "broken bridge")


class Caller(FastHttpUser):  # type: ignore[misc]
    """Sends one request after the other, without a pause, each for another owner."""

    wait_time = constant(0)
    network_timeout = 60.0
    connection_timeout = 60.0

    def lookup(self) -> None:
        """Look up one row by its key."""
        number = random.randrange(ROWS)
        self._ask("lookup", number % OWNERS, "/api/v1/query", {"query": f"LOOKUP report-{number}"})

    def search(self) -> None:
        """Search the rows of one owner by words and meaning."""
        question = f'SEARCH "{random.choice(QUESTIONS)}" FROM resources'
        self._ask("search", random.randrange(OWNERS), "/api/v1/query", {"query": question})

    def write(self) -> None:
        """Store a new row."""
        row = {"name": f"Note {uuid4()}", "content": f"The ferry was late at {random.choice(QUESTIONS)}."}
        self._ask("write", random.randrange(OWNERS), "/api/v1/entities/resources", row)

    def chat(self) -> None:
        """Ask the local model, which searches and answers with extracts."""
        body = {"model": "rem:local", "messages": [{"role": "user", "content": "What do I know about the ferry?"}]}
        self._ask("chat", random.randrange(OWNERS), "/api/v1/chat/completions", body)

    def _ask(self, kind: str, owner: int, path: str, body: dict[str, Any]) -> None:
        headers = {"X-User-Id": f"user-{owner}@example.com"}
        with self.client.post(path, json=body, headers=headers, name=kind, catch_response=True) as answer:
            if answer.status_code not in (200, 201):
                answer.failure(f"{answer.status_code} {(answer.text or '')[:200]}")


Caller.tasks = [getattr(Caller, kind) for kind, weight in MIX.items() for _ in range(weight)]


@events.init.add_listener  # type: ignore[untyped-decorator]
def begin_now(**_: object) -> None:
    """Set the clock of gevent, which is as old as its import: the time limit would be over before it began."""
    gevent.get_hub().loop.update_now()


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def exit_normally(environment: Any, **_: object) -> None:
    """Exit with 0 after failures, too: the report counts them."""
    environment.process_exit_code = 0
