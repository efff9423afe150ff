"""The command `rem mcp` as a real process of a real client."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError

from rem import Rem
from rem.db.store import Store
from rem.models import Resource
from tests.rem_command import REM, environment, output, rem

ALICE, BOB = "alice@example.com", "bob@example.com"

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning"),
    pytest.mark.usefixtures("collected"),
]


def client_of(*arguments: str, settings: dict[str, str], log: Path) -> Client[Any]:
    command = [str(REM), "mcp", *arguments]
    # A process that is kept alive may outlive its test.
    return Client(StdioTransport(command[0], command[1:], environment(settings), keep_alive=False, log_file=log))


async def test_client_acts_as_the_user_of_the_command(dsn: str, rem: Rem, bob: Store, tmp_path: Path) -> None:
    await bob.upsert(Resource(name="Note", content="Bob's"))
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none"}
    async with client_of("--user", ALICE, settings=settings, log=tmp_path / "log") as client:
        assert {"search_rem", "ask_agent", "register_metadata"} <= {tool.name for tool in await client.list_tools()}
        assert (await client.call_tool("lookup", {"key": "note"})).data["count"] == 0
        stored = (await client.call_tool("ingest_into_rem", {"name": "Note", "content": "Alice's 🎈"})).data
        assert stored["key"] == "note"
        answer = (await client.call_tool("ask_rem", {"question": "what is in the note?"})).data
        assert "Alice's 🎈" in json.dumps(answer, ensure_ascii=False)
        assert "query-agent" in (await client.read_resource("rem://agents"))[0].text
        with pytest.raises(ToolError, match="There is no agent"):
            await client.call_tool("ask_agent", {"agent_name": "nobody", "input_text": "hello"})
    (stored,) = (await rem.for_user(ALICE).query("LOOKUP note")).list_rows()
    assert stored["record"]["content"] == "Alice's 🎈"


async def test_ask_agent_works_without_a_language_model(dsn: str, alice: Store, tmp_path: Path) -> None:
    await alice.upsert(Resource(name="Harbour report", content="The harbour opens in May."))
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none"}
    async with client_of("--user", ALICE, settings=settings, log=tmp_path / "log") as client:
        question = {"agent_name": "rem", "input_text": "When does the harbour open?"}
        answer = (await client.call_tool("ask_agent", question)).data
        assert "The harbour opens in May." in json.dumps(answer)


async def test_tools_report_a_missing_database(tmp_path: Path) -> None:
    async with client_of(settings={"POSTGRES__ENABLED": "false"}, log=tmp_path / "log") as client:
        with pytest.raises(ToolError, match="POSTGRES__ENABLED=true"):
            await client.call_tool("lookup", {"key": "x"})


def test_standard_output_has_only_the_protocol(home: Path) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    done = subprocess.run(
        [str(REM), "--verbose", "mcp"],
        # A first start, which has much to tell.
        env=environment({"REM_HOME": str(home)}),
        input=json.dumps(hello) + "\nthis is no message\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers[0]["result"]["serverInfo"]["name"] == "rem"
    assert "Preparing the schema" in done.stderr


def test_invalid_user_is_rejected_at_the_start(tmp_path: Path) -> None:
    done = rem("mcp", "--user", " ", settings={"REM_HOME": str(tmp_path / "none")})
    assert done.returncode == 2
    assert "A user id has 1 to 255 characters" in done.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "client", ["claude-desktop", "claude-code", "cursor", "vscode", "zed", "windsurf", "gemini-cli"]
)
async def test_config_starts_rem_as_the_user(dsn: str, client: str, tmp_path: Path) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "REM_HOME": str(tmp_path)}
    done = rem("mcp", "config", client, "--user", ALICE, settings=settings)
    assert done.returncode == 0, done.stderr
    assert "POSTGRES__CONNECTION_STRING" in done.stderr
    assert dsn not in done.stdout + done.stderr
    ((_section, servers),) = json.loads(done.stdout).items()
    server = servers["rem"]
    assert server["args"] == ["mcp", "--user", ALICE]
    assert server["env"] == {"REM_HOME": str(tmp_path)}
    assert Path(server["command"]).samefile(REM)


async def test_printed_config_works(dsn: str, alice: Store, tmp_path: Path) -> None:
    await alice.upsert(Resource(name="Note", content="x"))
    printed = json.loads(output("mcp", "--user", ALICE, "config", "claude-code", settings={}))
    printed["mcpServers"]["rem"] |= {"env": environment({"POSTGRES__CONNECTION_STRING": dsn}), "keep_alive": False}
    async with Client(printed) as client:
        assert (await client.call_tool("lookup", {"key": "note"})).data["count"] == 1


@pytest.mark.parametrize(
    ("client", "server"),
    [
        ("claude-code", {"type": "http", "url": "http://x/mcp"}),
        ("cursor", {"url": "http://x/mcp"}),
        ("vscode", {"type": "http", "url": "http://x/mcp"}),
        ("zed", {"url": "http://x/mcp"}),
        ("windsurf", {"serverUrl": "http://x/mcp"}),
        ("gemini-cli", {"httpUrl": "http://x/mcp"}),
    ],
)
def test_config_for_a_running_server_names_the_user(client: str, server: dict[str, str]) -> None:
    arguments = ("--url", "http://x/mcp", "--user", BOB, "--tenant", "acme")
    ((_section, servers),) = json.loads(output("mcp", "config", client, *arguments, settings={})).items()
    assert servers == {"rem": {**server, "headers": {"X-User-Id": BOB, "X-Tenant-Id": "acme"}}}


def test_error_for_unknown_client_lists_known_ones() -> None:
    unknown = rem("mcp", "config", "emacs", settings={})
    assert (unknown.returncode, "claude-desktop, claude-code, cursor" in unknown.stderr) == (2, True)
    local_only = rem("mcp", "config", "claude-desktop", "--url", "http://x", settings={})
    assert (local_only.returncode, "leave --url out" in local_only.stderr) == (2, True)
