"""`rem demo`: the sample workspace, and the commands that it prints."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

from tests.rem_command import REM, environment, output


def test_demo_loads_the_workspace_and_prints_working_commands(dsn: str, tmp_path: Path) -> None:
    env = {"POSTGRES__CONNECTION_STRING": dsn}
    text = output("demo", settings=env)
    commands = [line[2:].split("  ")[0] for line in text.splitlines() if line.startswith(f"  {REM} ")]
    assert len(commands) == 7
    for command in commands:
        words = shlex.split(command)
        subprocess.run(words, env=environment(env), cwd=tmp_path, capture_output=True, check=True)
    quarterly = json.loads(output("lookup", "quarterly-report", "--json", settings=env))[0]
    assert ("sarah-chen", "authored_by") in {(edge["dst"], edge["rel_type"]) for edge in quarterly["graph_edges"]}
    assert output("lookup", "sarah-chen", settings=env).startswith("users/sarah-chen\n")
    again = json.loads(output("demo", "--json", settings=env))
    assert {outcome for counts in again["tables"].values() for outcome in counts} == {"unchanged"}
