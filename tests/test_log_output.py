"""LOG__FORMAT=json: each message of a server or a worker is one JSON object, with the id of its request or job."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import httpx2
import pytest
from loguru import logger

from rem.app import Rem
from rem.jobs.queue import JobQueue
from rem.log_output import LogFormat, log_to_stderr
from tests.cli.test_serve import serving
from tests.rem_command import rem as run_rem


def read_lines(text: str) -> list[dict[str, Any]]:
    """Return the JSON lines of a log, without the messages for people in between."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_log_has_fields_and_tracebacks_without_values(
    log_format: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stderr("INFO", log_format)
    with logger.contextualize(request_id="r-1"):
        logger.info("{} <b>tags</b>\nnext", "{braces}")
        text = "a text of a user {x}"
        try:
            int(text)
        except ValueError:
            logger.exception("It failed with Authorization: Bearer abcdefghijklmnop")
    logger.debug("too low")
    logger.remove()
    written = capsys.readouterr().err
    assert "a text of a user" not in written
    assert "abcdefghijklmnop" not in written
    assert "ValueError in" in written
    assert "too low" not in written
    if log_format == "text":
        assert "{braces} <b>tags</b>\nnext request_id=r-1" in written
        return
    first, second = map(json.loads, written.splitlines())
    assert first["message"] == "{braces} <b>tags</b>\nnext"
    assert first["level"] == "INFO"
    assert first["request_id"] == "r-1"
    assert first["module"] == __name__
    assert second["traceback"].startswith("ValueError in")


def test_server_logs_json_with_the_id_of_the_request(dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "LOG__FORMAT": "json"}
    with serving(settings=settings, stderr=subprocess.PIPE) as (address, process):
        httpx2.get(f"{address}/api/v1/models", headers={"X-Request-Id": "mine-1"}, timeout=30)
    (line,) = [line for line in read_lines(process.communicate()[1]) if line.get("request_id") == "mine-1"]
    assert line["method"] == "GET"
    assert line["route"] == "/api/v1/models"
    assert line["status"] == 200
    assert line["ms"] > 0


async def test_worker_logs_json_with_the_id_of_the_job(dsn: str, rem: Rem) -> None:
    job_id = await JobQueue(rem.database).enqueue("prune", {})
    done = run_rem("worker", "--once", settings={"POSTGRES__CONNECTION_STRING": dsn, "LOG__FORMAT": "json"})
    assert done.returncode == 0, done.stderr
    assert [line["job_id"] for line in read_lines(done.stderr) if "took" in line["message"]] == [job_id]
