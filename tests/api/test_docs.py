"""The examples, the error table and the paths of docs/api.md."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx2
import pytest
import yaml

from rem import errors
from rem.api.errors import http_status
from rem.app import Rem
from rem.demo import DEMO_TENANT, load_workspace
from tests.rem_command import REPOSITORY

_PAGE = (REPOSITORY / "docs" / "api.md").read_text(encoding="utf-8")
_EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```bash\n(.*?)```", _PAGE, re.DOTALL))


async def run(name: str, address: str) -> list[str]:
    """Run an example, and return the output of each command."""
    outputs = []
    for command in _EXAMPLES[name].strip().split("\n\n"):
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", command.replace("http://localhost:8000", address), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, command
        outputs.append(output.decode())
    return outputs


@pytest.fixture(autouse=True)
async def workspace(rem: Rem) -> None:
    await load_workspace(rem.for_user(tenant=DEMO_TENANT).store)


async def test_query_examples(address: str) -> None:
    for name in ("lookup", "natural"):
        (answer,) = await run(name, address)
        assert json.loads(answer)["results"][0]["key"] == "sarah-chen"


async def test_entity_examples(address: str) -> None:
    stored, corrected, listed, deleted, restored = await run("entities", address)
    assert json.loads(stored)["content"] == "To Lisbon in May."
    assert json.loads(corrected)["content"] == "To Lisbon in June."
    assert [row["key"] for row in json.loads(listed)["data"]] == ["travel-plans"]
    assert deleted == ""
    assert json.loads(restored)["id"] == json.loads(stored)["id"]


async def test_forget_example(address: str) -> None:
    (shown,) = await run("forget", address)
    assert {"fingerprint", "rows", "mentions"} <= set(json.loads(shown))


async def test_session_examples(address: str) -> None:
    answer, messages, share, shared = await run("sessions", address)
    said = [message["content"] for message in json.loads(messages)["data"]]
    assert said[0] == "Who is Sarah Chen?"
    assert said[-1] == json.loads(answer)["answer"]
    assert json.loads(shared)["data"][0]["id"] == json.loads(share)["session_id"] == json.loads(answer)["session_id"]


async def test_body_examples(address: str) -> None:
    _answer, renamed, copy, flagged, rated = map(json.loads, await run("bodies", address))
    assert renamed["name"] == "All about Sarah"
    assert (copy["name"], copy["message_count"]) == ("Only the question", 1)
    assert flagged["metadata"]["important"] is True
    assert (rated["session_id"], rated["rating"]) == (renamed["id"], 1)
    assert rated["message_id"] not in (None, flagged["id"])


async def test_agent_examples(address: str) -> None:
    document, saved, models = await run("agents", address)
    assert yaml.safe_load(document)["json_schema_extra"]["name"] == "rem"
    assert json.loads(saved)["name"] == "cook"
    assert {"rem", "rem:local"} <= {model["id"] for model in json.loads(models)["data"]}


async def test_error_example(address: str) -> None:
    (answer,) = await run("error", address)
    promised: dict[str, Any] = json.loads(re.findall(r"```json\n(.*?)```", _PAGE, re.DOTALL)[0])
    assert {**json.loads(answer)["error"], "message": "…"} == promised["error"]


def test_error_table_has_all_error_codes() -> None:
    rows = re.findall(r"^\| (\d{3}) \| (.*?) \|", _PAGE, re.MULTILINE)
    listed = {(int(status), code) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RemError)]
    assert {(http_status(kind()), kind.code) for kind in kinds} <= listed


async def test_documented_paths_exist(address: str) -> None:
    async with httpx2.AsyncClient(base_url=address) as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
    for methods, path in re.findall(r"((?:`?[A-Z]+`?,? ?)+)(/api/v1/[^`\s]*)`", _PAGE):
        for method in re.findall(r"[A-Z]+", methods):
            assert method.lower() in paths[path], f"{method} {path}"
