"""The README and the docs are correct: their examples and commands run, and generated pages are up to date."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tooling.command_reference import render_reference
from tooling.settings_reference import render_settings

import rem
from rem import errors
from rem.cli.main import build_command
from rem.settings import Settings
from tests.rem_command import REPOSITORY, output, run_python

DOCS = REPOSITORY / "docs"
README = REPOSITORY / "README.md"
PAGES = [README, REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
MAX_README_LINES = 180


def read_page(path: Path) -> str:
    """Return the text of a page."""
    return path.read_text(encoding="utf-8")


def read_example(path: Path, name: str) -> str:
    """Return the code of the example that the comment `example: name` marks."""
    (code,) = re.findall(rf"<!-- example: {name} -->\n```\w+\n(.*?)```", read_page(path), re.DOTALL)
    return str(code)


def read_commands(path: Path, name: str) -> list[list[str]]:
    """Return the arguments of each `rem` command in the block that the comment `commands: name` marks."""
    (block,) = re.findall(rf"<!-- commands: {name} -->\n```sh\n(.*?)```", read_page(path), re.DOTALL)
    return [shlex.split(line)[1:] for line in block.splitlines()]


def run_example(path: Path, name: str, dsn: str, cwd: Path | None = None) -> list[str]:
    """Run an example as a program of its own, and return the lines that it prints."""
    done = run_python(read_example(path, name), settings={"POSTGRES__CONNECTION_STRING": dsn}, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def expected_output(path: Path, name: str) -> list[str]:
    """Return the comments behind the `print` calls of an example."""
    return [line.split("  # ", 1)[1] for line in read_example(path, name).splitlines() if "print(" in line]


@pytest.mark.parametrize(
    ("path", "name", "prints"),
    [
        (README, "library", 2),
        (DOCS / "library.md", "store", 4),
        (DOCS / "library.md", "query", 5),
        (DOCS / "library.md", "find", 6),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_example_prints_its_comments_twice_and_with_demo_data(dsn: str, path: Path, name: str, prints: int) -> None:
    expected = expected_output(path, name)
    assert len(expected) == prints
    assert run_example(path, name, dsn) == expected
    output("demo", settings={"POSTGRES__CONNECTION_STRING": dsn})
    assert run_example(path, name, dsn) == expected


def test_ingest_example_prints_its_comments(dsn: str, tmp_path: Path) -> None:
    path = DOCS / "library.md"
    assert run_example(path, "ingest", dsn, cwd=tmp_path) == expected_output(path, "ingest") != []


def test_custom_type_example_runs_twice(dsn: str) -> None:
    first = run_example(DOCS / "library.md", "custom", dsn)
    assert first[0].startswith("CREATE TABLE rem.")
    assert first[-1] == "apollo"
    second = run_example(DOCS / "library.md", "custom", dsn)
    assert second[0] == "-- projects is up to date."


def test_yaml_example_loads(dsn: str, tmp_path: Path) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    path = DOCS / "database.md"
    (tmp_path / "example.yaml").write_text(read_example(path, "yaml"), encoding="utf-8")
    load, lookup, dangling, dump = (
        output(*command, settings=settings, cwd=tmp_path) for command in read_commands(path, "load")
    )
    assert load
    assert "-> authored_by ada-lovelace" in lookup
    assert "ada-lovelace" not in dangling
    assert not dump
    assert "analytical-engine" in (tmp_path / "copy.yaml").read_text(encoding="utf-8")


def test_readme_commands_run_on_the_demo_workspace(dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    output("demo", settings=settings)
    commands = read_commands(README, "ask")
    assert len(commands) == 7
    for command in commands:
        assert output(*command, settings=settings)


def test_readme_commands_remember_and_answer(dsn: str, tmp_path: Path) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "REM_CONFIG": str(tmp_path / "config.yaml")}
    *_, answer = (output(*command, settings=settings) for command in read_commands(README, "remember"))
    assert "in the blue jar" in answer


def test_readme_ingest_and_dream_commands_run(dsn: str, tmp_path: Path) -> None:
    config = str(tmp_path / "config.yaml")
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none", "REM_CONFIG": config}
    # All pages take half a minute of dreams.
    (tmp_path / "docs").mkdir()
    for page in ("README.md", "docs/forgetting.md", "docs/sessions.md"):
        shutil.copy(REPOSITORY / page, tmp_path / page)
    for command in read_commands(README, "remember"):
        output(*command, settings=settings)
    ingest, search = (output(*command, settings=settings, cwd=tmp_path) for command in read_commands(README, "ingest"))
    assert "added" in ingest
    assert "forgetting" in search
    _, statements, plan = (
        output(*command, settings=settings, cwd=tmp_path) for command in read_commands(README, "dream")
    )
    assert "My bike is red" in statements
    assert "README" not in statements, "the pages of REM are in the user's own memory"
    assert "bike" in plan


@pytest.mark.parametrize(
    ("page", "name"), [("database.md", "inspect"), ("embeddings.md", "models"), ("administration.md", "admin")]
)
def test_commands_of_the_operating_guides_run(dsn: str, page: str, name: str) -> None:
    for command in read_commands(DOCS / page, name):
        assert output(*command, settings={"POSTGRES__CONNECTION_STRING": dsn})


def test_backup_of_the_database_guide_is_restored(dsn: str, empty_dsn: str, tmp_path: Path) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "REM_USER": "alice@example.com"}
    output("remember", "The spare key is in the blue jar.", settings=settings)
    (backup,) = read_commands(DOCS / "database.md", "backup")
    (restore,) = read_commands(DOCS / "database.md", "restore")
    assert "Wrote " in output(*backup, settings=settings, cwd=tmp_path)
    restored = settings | {"POSTGRES__CONNECTION_STRING": empty_dsn}
    assert "Restored 1 row." in output(*restore, settings=restored, cwd=tmp_path)
    assert "blue jar" in output("ask", "Where is the spare key?", settings=restored)


def _documented_commands(path: Path) -> Iterator[list[str]]:
    """Yield the arguments of each line in a code block that starts with `rem`."""
    for block in re.findall(r"```(?:sh|bash|text)\n(.*?)```", read_page(path), re.DOTALL):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            if line.startswith("rem "):
                yield shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize("path", [page for page in PAGES if page.name != "cli.md"], ids=lambda path: path.name)
def test_documented_commands_and_options_exist(path: Path) -> None:
    for arguments in _documented_commands(path):
        command: Any = build_command()
        for argument in arguments:
            subcommands = getattr(command, "commands", {})
            if not argument.startswith("-") and argument in subcommands:
                command = subcommands[argument]
        if default := getattr(command, "default_command", None):
            command = command.commands[default]
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        used = {argument.split("=")[0] for argument in arguments if re.match(r"--?[a-z]", argument)}
        assert used <= options | {"--help"}, f"rem {' '.join(arguments)}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_documented_python_imports_only_public_names(path: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", read_page(path), re.DOTALL):
        assert not re.search(r"^\s*(?:from|import) rem\.(?!evals import)", block, re.MULTILINE)
        for names in re.findall(r"^\s*from rem import (\([^)]+\)|.+)$", block, re.MULTILINE):
            assert {name.strip() for name in names.strip("()").split(",")} - {""} <= set(dir(rem))


def test_library_guide_lists_every_public_name() -> None:
    public_names = read_page(DOCS / "library.md").partition("## Public names")[2]
    assert sorted(re.findall(r"`(\w+)`", public_names)) == dir(rem)


def test_command_reference_is_up_to_date() -> None:
    assert read_page(DOCS / "cli.md") == render_reference(), "run `make docs`"


def test_settings_page_is_up_to_date() -> None:
    assert read_page(DOCS / "settings.md") == render_settings(), "run `make docs`"


def test_every_setting_has_a_description() -> None:
    undescribed = [line for line in render_settings().splitlines() if re.match(r"\| `[A-Z_]+` \|\s+\|", line)]
    assert not undescribed
    rows = re.findall(r"^\| `([A-Z_]+)` \| .+ \| (.+) \|$", render_settings(), re.MULTILINE)
    assert len(rows) > 80
    settings = Settings()
    for name, default in rows:
        value: Any = settings
        for part in [name] if name == "REM_HOME" else name.split("__"):
            value = getattr(value, part.lower())
        if name != "REM_HOME":
            shown = "not set" if value is None else f"`{str(value).removesuffix('.0')}`"
            assert default.lower() == shown.lower(), name


def test_every_exit_code_has_a_meaning() -> None:
    classes = [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, errors.RemError)]
    assert {error.exit_code for error in classes} == set(errors.EXIT_CODES) - {0, 130}


def test_glossary_has_each_word_once_and_its_modules_exist() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \| `(rem[\w.]*)` \|$", read_page(DOCS / "glossary.md"), re.MULTILINE)
    words = [word for word, _, _ in rows]
    assert len(words) > 80
    assert sorted(set(words)) == sorted(words)
    for _, meaning, module in rows:
        assert meaning.endswith(".")
        import_module(module)


@pytest.mark.parametrize("folder", ["docs/decisions", "src/rem/db/migrations"])
def test_numbers_are_given_once_and_without_gaps(folder: str) -> None:
    names = {path.name.partition(".")[0] for path in (REPOSITORY / folder).iterdir() if path.suffix in (".md", ".sql")}
    assert sorted(int(name[:4]) for name in names) == list(range(1, len(names) + 1))


def test_readme_is_short_and_uses_the_installed_command() -> None:
    readme = read_page(README)
    assert len(readme.splitlines()) <= MAX_README_LINES
    assert not any(".venv/bin/rem" in read_page(path) for path in PAGES)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_inside_the_repository_lead_somewhere(path: Path) -> None:
    prose = re.sub(r"^```.*?^```|`[^`\n]+`", "", read_page(path), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\((?!http)([^)]+)\)", prose):
        file_name, _, anchor = target.partition("#")
        page = path.parent / file_name if file_name else path
        assert page.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", read_page(page), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, target


def test_documented_make_targets_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    docs = read_page(README) + read_page(REPOSITORY / "CONTRIBUTING.md")
    commands = [*re.findall(r"^make .+$", docs, re.MULTILINE), *re.findall(r"`(make [^`]+)`", docs)]
    targets = set(re.findall(r"make (?:PYTHON=\S+ )?([\w-]+)", "\n".join(commands)))
    assert {"run", "test", "lint", "docs"} <= targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_contributing_guide_names_existing_files() -> None:
    paths = re.findall(r"`(src/[^`]+)`", read_page(REPOSITORY / "CONTRIBUTING.md"))
    assert len(paths) > 15
    assert not [path for path in paths if not (REPOSITORY / path).exists()]


def test_architecture_guide_names_existing_files_in_its_walks() -> None:
    walks = read_page(DOCS / "architecture.md").partition("## The five walks")[2]
    paths = re.findall(r"`([\w/]+\.(?:py|sql))`", walks)
    assert len(paths) > 200
    assert not [path for path in paths if not (REPOSITORY / "src" / "rem" / path).exists()]


def test_lock_file_has_no_address_and_no_torch() -> None:
    lock = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    assert not re.search(r"^(torch|nvidia)", lock, re.MULTILINE)


def test_readme_names_how_to_run_and_to_test_in_its_first_screen() -> None:
    first_screen = "\n".join(read_page(README).splitlines()[:25])
    assert "make run" in first_screen
    assert "make test" in first_screen
