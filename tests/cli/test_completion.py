"""Shell completion: the script of each shell is valid, installs, and completes commands."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.rem_command import REM, environment


def run(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**environment({}), "HOME": str(cwd), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", **variables}
    return subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("shell", "variables"),
    [
        ("bash", {"COMP_WORDS": "rem sess", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "rem sess"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "rem sess", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_commands_are_completed(tmp_path: Path, shell: str, variables: dict[str, str]) -> None:
    done = run(str(REM), cwd=tmp_path, _REM_COMPLETE=f"complete_{shell}", **variables)
    assert done.returncode == 0, done.stderr
    assert "sessions" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_shown_and_valid(tmp_path: Path, shell: str) -> None:
    script = run(str(REM), "--show-completion", shell, cwd=tmp_path).stdout
    assert "_REM_COMPLETE" in script
    program = shutil.which(shell)
    if program is not None:
        (tmp_path / "script").write_text(script, encoding="utf-8")
        checked = run(program, "-n", "script", cwd=tmp_path)
        assert checked.returncode == 0, checked.stderr


def test_completion_installs_and_works_in_a_shell(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    installed = run(str(REM), "--install-completion", "bash", cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    assert "bash completion installed" in installed.stdout
    scripts = [path for path in tmp_path.rglob("*") if path.is_file() and "_REM_COMPLETE" in path.read_text("utf-8")]
    assert scripts
    asked = f"source {scripts[0]}; COMP_WORDS=(rem sess); COMP_CWORD=1; _rem_completion {REM}; echo ${{COMPREPLY[@]}}"
    assert run(bash, "-c", asked, cwd=tmp_path).stdout.strip() == "sessions"
