"""`rem demo`: the sample workspace, the commands that it prints, and its removal."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from tests.rem_command import REM, output, rem


def test_demo_loads_the_workspace_and_prints_working_commands(dsn: str, tmp_path: Path) -> None:
    env = {"POSTGRES__CONNECTION_STRING": dsn}
    text = output("demo", settings=env)
    commands = [line.strip() for line in text.splitlines() if line.startswith(f"  {REM} ")]
    assert len(commands) == 8
    *examples, removal = (shlex.split(command)[1:] for command in commands)
    for words in examples:
        output(*words, settings=env, cwd=tmp_path)
    quarterly = json.loads(output("lookup", "quarterly-report", "--tenant", "demo", "--json", settings=env))[0]
    assert ("sarah-chen", "authored_by") in {(edge["dst"], edge["rel_type"]) for edge in quarterly["graph_edges"]}
    assert output("lookup", "sarah-chen", "--tenant", "demo", settings=env).startswith("users/sarah-chen\n")
    assert rem("lookup", "sarah-chen", settings=env).returncode == 3
    again = json.loads(output("demo", "--json", settings=env))
    assert {outcome for counts in again["tables"].values() for outcome in counts} == {"unchanged"}
    output(*removal, settings=env, cwd=tmp_path)
    assert rem("lookup", "sarah-chen", "--tenant", "demo", settings=env).returncode == 3


def test_removal_erases_the_chats_of_the_demo_tenant_only(dsn: str) -> None:
    env = {"POSTGRES__CONNECTION_STRING": dsn, "REM_USER": "zoe@example.com"}
    output("demo", settings=env)
    output("ask", "Who is Sarah Chen?", "--tenant", "demo", settings=env)
    output("ask", "I live in Leeds.", settings=env)
    assert "sample rows and 1 chat of the tenant demo." in output("demo", "--remove", settings=env)
    assert json.loads(output("sessions", "list", "--tenant", "demo", "--json", settings=env)) == []
    assert len(json.loads(output("sessions", "list", "--json", settings=env))) == 1
