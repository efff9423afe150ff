"""Output of all commands: a full disk, a closed pipe, a locale without Unicode, command hints."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rem.cli.output import (
    WrappingWriter,
    format_command,
    format_table_count,
    get_line_width,
    progress_bars,
    shorten,
    wrap_lines,
)
from tests.rem_command import REM, environment, output, rem


@pytest.fixture
def env(dsn: str, tmp_path: Path) -> dict[str, str]:
    """Load a large row, and return the settings."""
    rows = tmp_path / "rows.yaml"
    rows.write_text(
        f"- {{table: resources, key_field: name, rows: [{{name: Großes Buch, content: {'漢字 ' * 50_000}}}]}}\n",
        encoding="utf-8",
    )
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    output("db", "load", str(rows), settings=settings)
    return settings


COMMANDS = [("db", "dump"), ("lookup", "großes-buch"), ("lookup", "großes-buch", "--json")]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_full_disk_prints_one_error_line(env: dict[str, str], words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([REM, *words], env=environment(env), stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr.decode() == "Error: the output cannot be written: No space left on device.\n"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_closed_pipe_prints_nothing(env: dict[str, str], words: tuple[str, ...]) -> None:
    process = subprocess.Popen([REM, *words], env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 1


def test_closed_stdout_is_no_error(env: dict[str, str]) -> None:
    done = subprocess.run(
        f"{REM} db dump >&-", shell=True, env=environment(env), stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "1 row.\n")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_output_is_utf8_in_every_locale(env: dict[str, str], words: tuple[str, ...]) -> None:
    assert "漢字" in output(*words, settings={**env, "PYTHONIOENCODING": "ascii", "LANG": "C"})


def test_progress_is_not_printed_without_a_terminal(env: dict[str, str], tmp_path: Path) -> None:
    rows = tmp_path / "rows.yaml"
    assert rem("db", "load", str(rows), settings=env).stderr == ""
    assert rem("db", "dump", "-o", str(tmp_path / "dump.yaml"), settings=env).stderr == "1 row.\n"


def test_verbose_prints_progress(env: dict[str, str], tmp_path: Path) -> None:
    log = rem("--verbose", "db", "load", str(tmp_path / "rows.yaml"), settings=env).stderr
    assert f"DEBUG: {tmp_path}/rows.yaml: 1 row" in log
    assert "DEBUG: Loading: 1 rows of 1" in log


def test_format_command_uses_the_name_rem_was_called_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [".venv/bin/rem", "demo"])
    monkeypatch.setattr("shutil.which", lambda _name: None)
    assert format_command("lookup", "Sarah Chen", user="a@b.c", tenant="x") == (
        ".venv/bin/rem lookup 'Sarah Chen' --user a@b.c --tenant x"
    )
    monkeypatch.setattr("sys.argv", ["/src/rem/__main__.py", "demo"])
    assert format_command("db", "status").endswith(" -m rem db status")
    monkeypatch.setattr("shutil.which", lambda _name: "/usr/bin/rem")
    assert format_command("db", "status") == "rem db status"


def test_progress_of_several_tasks_is_one_line_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bars("Reading", "Embedding", line_seconds=0) as (on_file, on_passage):
        on_file(1, 2000)
        on_passage(7, None)
    assert capsys.readouterr().err == "Reading: 1 of 2,000\nReading: 1 of 2,000, Embedding: 7\n"
    with progress_bars("Reading", "Embedding", line_seconds=60) as (on_file, _):
        on_file(1, 2000)
    assert capsys.readouterr().err == ""


def test_lines_are_broken_between_words_and_indented() -> None:
    text = "1. one two three\nfour-five-six-seven-eight"
    assert wrap_lines(text, 10, "   ") == ["1. one two", "   three", "four-five-six-seven-eight"]
    assert wrap_lines(text, None, "   ") == text.split("\n")


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_streamed_text_is_broken_between_words(capsys: pytest.CaptureFixture[str], size: int) -> None:
    text = "Found:\n\n1. `key`: a note that is long\n\n```\nthis code is not broken at all\n```\nEnd \x1b[2J of it"
    writer = WrappingWriter(16)
    for start in range(0, len(text), size):
        writer.write(text[start : start + size])
    writer.close()
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[2:5] == ["1. `key`: a note", "   that is long", ""]
    assert lines[6] == "this code is not broken at all"
    assert " ".join(lines[8:]) == "End \\x1b[2J of it"


def test_streamed_text_is_unchanged_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert get_line_width() is None
    writer = WrappingWriter(None)
    writer.write(f"a  b\n  {'c ' * 10_000}")
    writer.close()
    assert capsys.readouterr().out == f"a  b\n  {'c ' * 10_000}\n"


def test_counts_have_the_right_number() -> None:
    counts = [format_table_count(count, table) for count, table in ((1, "ontologies"), (1, "users"), (2, "files"))]
    assert counts == ["1 ontology", "1 user", "2 files"]


def test_interruption_while_modules_are_imported_prints_no_traceback() -> None:
    program = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "rem.cli.main":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from rem.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment({}), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize(
    ("text", "max_chars", "short"),
    [
        ("one two", 14, "one two"),
        ("Go to the harbour office", 14, "Go to the…"),
        ("x" * 20, 14, "x" * 13 + "…"),
        ("a " + "港" * 60, 51, "a " + "港" * 48 + "…"),
    ],
)
def test_long_text_ends_after_a_word(text: str, max_chars: int, short: str) -> None:
    assert shorten(text, max_chars) == short
