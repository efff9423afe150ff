"""Ask a server again and again, in a process of its own, and measure how long it takes to answer.

`python probe.py HOST PORT SOURCE` asks from the address SOURCE, if it is not empty. It writes a line for each answer:
the name of the question and the seconds. It ends when its input is closed. It imports little, so that it measures the
server and not itself.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time

PAUSE_SECONDS = 0.03
LOOKUP = json.dumps({"query": "LOOKUP blue-door"})
QUESTIONS = {
    "live": ("GET", "/health/live", None),
    "lookup": ("POST", "/api/v1/query", LOOKUP),
}


def ask(name: str, host: str, port: int, source: str) -> None:
    """Ask one question until the process ends."""
    method, path, body = QUESTIONS[name]
    connection = http.client.HTTPConnection(host, port, timeout=60, source_address=(source, 0) if source else None)
    headers = {"Content-Type": "application/json", "X-User-Id": "bystander"}
    while True:
        started = time.perf_counter()
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        seconds = time.perf_counter() - started
        sys.stdout.write(f"{name} {seconds:.4f} {answer.status}\n")
        sys.stdout.flush()
        time.sleep(PAUSE_SECONDS)


def main() -> None:
    """Ask all questions until the input is closed."""
    host, port = sys.argv[1], int(sys.argv[2])
    for name in QUESTIONS:
        threading.Thread(target=ask, args=(name, host, port, sys.argv[3]), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
