"""`rem chat` with a model that is slow, fails, is cut off or thinks, here and on a server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.api.chat.test_streaming import AGENT
from tests.cli.chat.conftest import connect
from tests.rem_command import output, rem
from tests.scripted_model import Call, HangUp, Pause, Raw, Refuse, ScriptedModel, Step, has_result, last_text
from tests.terminal import CTRL_C, ENTER, Terminal


def _reason(text: str) -> Raw:
    chunk = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "delta": {"reasoning_content": text}, "finish_reason": None}],
    }
    return Raw(f"data: {json.dumps(chunk)}\n\n".encode())


def _fail(body: dict[str, Any]) -> Sequence[Step]:
    text = last_text(body)
    if "late" in text:
        return [Pause(5), "too late"]
    if "cut" in text:
        return ["The answer begins", HangUp()]
    if "500" in text:
        return [Refuse(500, "the provider is down")]
    if "think" in text:
        return [_reason("First I count the boats."), Pause(0.3), "Two boats."]
    return [f"Fine: {text}."]


@pytest.mark.parametrize("place", ["local", "remote", "remote with key"])
def test_failed_answers_are_explained_and_the_session_goes_on(
    scripted: dict[str, str], model: ScriptedModel, place: str
) -> None:
    model.script = _fail
    settings = {**scripted, "LLM__TIMEOUT_SECONDS": "1"}
    with connect(settings, place) as options, Terminal("chat", *options, settings=settings) as terminal:
        terminal.wait_for(">")
        terminal.type("a 500 please" + ENTER)
        terminal.wait_for("Error: ")
        terminal.wait_for(">")
        terminal.type("be late" + ENTER)
        terminal.wait_for("waiting for the model")
        terminal.wait_for("did not answer in time")
        terminal.wait_for(">")
        terminal.type("cut it" + ENTER)
        terminal.wait_for("The answer begins")
        terminal.wait_for("Error: ")
        terminal.wait_for(">")
        terminal.type("still there?" + ENTER)
        terminal.wait_for("Fine: still there?.")
        terminal.wait_for(">")
        terminal.type("/history" + ENTER)
        for text in ("a 500 please", "cut it", "The answer begins", "Fine: still there?."):
            terminal.wait_for(text)
        terminal.type("/quit" + ENTER)
        assert terminal.wait_for_end() == 0
    assert "Traceback" not in terminal.text
    # The error itself is enough.
    assert "WARNING" not in terminal.text


def test_reasoning_is_folded(scripted: dict[str, str], model: ScriptedModel) -> None:
    model.script = _fail
    with Terminal("chat", settings=scripted) as terminal:
        terminal.wait_for(">")
        terminal.type("think" + ENTER)
        terminal.wait_for("thinking")
        before = terminal.wait_for("Two boats.")
        assert "thought for" in before
        assert "First I count" not in terminal.text
        terminal.type("/reasoning" + ENTER)
        terminal.wait_for("First I count the boats.")


def test_child_agents_and_their_tools_are_shown_while_they_run(
    scripted: dict[str, str], model: ScriptedModel, tmp_path: Any
) -> None:
    for name, tool in (("boss", "ask_agent"), ("helper", "search_rem")):
        path = tmp_path / f"{name}.yaml"
        path.write_text(AGENT.format(name=name, prompt=f"I am {name}.", tools=f"    - name: {tool}"))
        output("agents", "save", str(path), settings=scripted)

    def script(body: dict[str, Any]) -> Sequence[Step]:
        is_helper = "I am helper." in json.dumps(body["messages"])
        if has_result(body):
            return [Pause(1.5), "Found nothing."] if is_helper else ["Done by the boss."]
        if is_helper:
            return [Call("search_rem", {"query": 'FUZZY "boat"'}, "call_h")]
        return [Call("ask_agent", {"agent_name": "helper", "input_text": "look"}, "call_b")]

    model.script = script
    with Terminal("chat", "-a", "boss", settings=scripted) as terminal:
        terminal.wait_for(">")
        terminal.type("go" + ENTER)
        terminal.wait_for("· boss: ask_agent(agent_name='helper'")
        terminal.wait_for("· helper: search_rem(query='FUZZY")
        # The line that is drawn again as long as the call runs.
        terminal.wait_for("boss: ask_agent 1 s")
        terminal.wait_for(">")


def test_ctrl_c_at_a_question_keeps_the_chat(scripted: dict[str, str]) -> None:
    with Terminal("chat", settings=scripted) as terminal:
        terminal.wait_for(">")
        terminal.type("hello" + ENTER)
        terminal.wait_for("message 1.")
        terminal.type("/forget" + ENTER)
        terminal.wait_for("Type yes:")
        terminal.type(CTRL_C)
        terminal.wait_for("Stopped.")
        terminal.type("/history" + ENTER)
        terminal.wait_for("message 1.")
        terminal.type("/quit" + ENTER)
        assert terminal.wait_for_end() == 0


def test_wrong_key_and_absent_server_are_explained(scripted: dict[str, str]) -> None:
    with connect(scripted, "remote with key") as (url, address, *_):
        refused = rem("chat", url, address, "--api-key", "remk_wrong", settings=scripted, stdin="hello\n")
        assert refused.returncode != 0
        assert "--api-key" in refused.stderr
    gone = rem("chat", "--url", address, settings=scripted, stdin="hello\n")
    assert gone.returncode == 1
    assert "does not answer" in gone.stderr
    assert "Traceback" not in refused.stderr + gone.stderr


@contextmanager
def _serve(pages: dict[str, bytes | None]) -> Iterator[str]:
    """Serve a page for each end of a path; None is a page that does not end. Yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = next((page for end, page in pages.items() if self.path.endswith(end)), b"{}")
            self.send_response(200)
            self.end_headers()
            try:
                while content is None:
                    self.wfile.write(b"x" * 2**20)
                self.wfile.write(content)
            except OSError:
                pass  # The client has left.

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, format: str, *values: Any) -> None:  # noqa: A002  # the name of the base class
            """Print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


MODELS = b'{"data": [{"id": "rem"}]}'


@pytest.mark.parametrize(
    ("pages", "words"),
    [
        ({"models": b"<html>Welcome</html>"}, "is this the address of a REM server?"),
        ({"models": b'{"data": 5}'}, "is this the address of a REM server?"),
        ({"models": None}, "more than 64 MB"),
        ({"models": MODELS, "completions": b"data: {oops\n\n"}, "does not understand"),
        ({"models": MODELS, "completions": b"data: [1]\n\n"}, "does not understand"),
        ({"models": MODELS, "completions": b'data: {"choices": [{"delta": {"content": [1]}}]}\n\n'}, "not understand"),
        ({"models": MODELS, "completions": b"event: metadata\ndata: null\n\n"}, "does not understand"),
        ({"models": MODELS, "completions": b"data: \xff\xfe\n\n"}, "does not understand"),
        ({"models": MODELS, "completions": None}, "more than 64 MB"),
    ],
)
def test_server_that_is_no_rem_server_is_explained(pages: dict[str, bytes | None], words: str) -> None:
    with _serve(pages) as address:
        asked = rem("ask", "hello", "--url", address, settings={})
    assert asked.returncode == 1
    assert words in asked.stderr
    assert "Traceback" not in asked.stderr


def test_chat_survives_senseless_answers_to_commands() -> None:
    with _serve({"models": MODELS, "sessions?limit=15": b'{"data": [{"id": 5}]}'}) as address:
        chat = rem("chat", "--url", address, settings={}, stdin="/sessions\n/profile\n/agent\n/help\n")
    assert chat.returncode == 1
    assert chat.stderr.count("does not understand") == 3
    assert "/feedback" in chat.stdout


def test_misspelt_query_is_explained_and_not_searched(dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "REM_USER": "zoe@example.com"}
    chat = rem("chat", settings=settings, stdin="/query SELEC name FROM resources\n")
    assert chat.returncode == 1
    assert "Did you mean: SELECT name FROM resources" in chat.stderr
