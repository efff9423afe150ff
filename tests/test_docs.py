"""What the README and the docs say is what happens."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rem import errors
from rem.cli.reference import render_reference
from rem.settings import Settings
from tests.rem_command import REPOSITORY, environment, output

_README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
_EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```\w+\n(.*?)```", _README, re.DOTALL))


def run_example(name: str, dsn: str) -> list[str]:
    """The lines that an example of the README prints."""
    done = subprocess.run(
        [sys.executable, "-c", _EXAMPLES[name]],
        env=environment({"POSTGRES__CONNECTION_STRING": dsn}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("name", "lines"), [("library", 4), ("query", 5), ("find", 6)])
def test_an_example_prints_what_its_comments_say_also_again_and_after_make_run(dsn: str, name: str, lines: int) -> None:
    promised = [
        line.split("# ", 1)[1].split("]: ")[0] + ("]" if "]: " in line else "")
        for line in _EXAMPLES[name].splitlines()
        if "print(" in line
    ]
    assert run_example(name, dsn) == promised
    output("demo", settings={"POSTGRES__CONNECTION_STRING": dsn})
    assert run_example(name, dsn) == promised
    assert len(promised) == lines


def test_the_example_of_an_own_type_works_twice(dsn: str) -> None:
    first = run_example("custom", dsn)
    assert first[0].startswith("CREATE TABLE rem.")
    assert first[-1] == "apollo"
    second = run_example("custom", dsn)
    assert second[0] == "-- projects is up to date."


def test_the_yaml_example_loads(dsn: str, tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(_EXAMPLES["yaml"], encoding="utf-8")
    output("db", "load", str(path), settings={"POSTGRES__CONNECTION_STRING": dsn})
    assert "-> authored_by ada-lovelace" in output(
        "lookup", "analytical-engine", settings={"POSTGRES__CONNECTION_STRING": dsn}
    )


def test_the_first_commands_of_the_readme_work_on_the_sample_workspace(dsn: str) -> None:
    commands = re.findall(r"^\.venv/bin/rem (.*)$", _README, re.MULTILINE)
    output("demo", settings={"POSTGRES__CONNECTION_STRING": dsn})
    assert len(commands) == 8
    for command in commands:
        assert output(*shlex.split(command), settings={"POSTGRES__CONNECTION_STRING": dsn})


def test_the_settings_of_the_readme_exist_with_these_defaults() -> None:
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \|.*\| (\S+) \|$", _README, re.MULTILINE))
    settings = Settings()
    checked = 0
    for name, default in rows.items():
        group, separator, field = name.partition("__")
        if separator and field != "CONNECTION_STRING":
            stored: object = settings
            for part in (group, *field.split("__")):
                stored = getattr(stored, part.lower())
            assert str(stored).removesuffix(".0").lower() == default.strip("`").lower(), name
            checked += 1
    assert checked >= 40


def test_the_exit_codes_of_the_readme_are_those_of_the_errors() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", _README, re.MULTILINE)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RemError)]
    assert listed - {130} == {kind.exit_code for kind in kinds}


def test_the_command_reference_is_up_to_date() -> None:
    assert (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8") == render_reference(), "run `make docs`"


@pytest.mark.parametrize(
    "path",
    [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))],
    ids=lambda path: path.name,
)
def test_links_inside_the_repository_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_the_make_targets_that_the_docs_name_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    docs = _README + (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"make (?:PYTHON=\S+ )?(\w+)", docs))
    assert named
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in named - {"with"})


def test_the_lock_file_names_no_address_and_no_torch() -> None:
    lock = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    assert not re.search(r"^(torch|nvidia)", lock, re.MULTILINE)
