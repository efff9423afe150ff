"""The examples and tables of docs/chat.md are correct."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from typing import Any, get_args

from rem import events
from rem.api.chat_request import ChatRequest
from rem.context import AgentContext
from tests.api.chat.conftest import Chat
from tests.api.chat.test_client_tools import script_weather
from tests.rem_command import REPOSITORY, run_python
from tests.scripted_model import last_text

_TEXT = (REPOSITORY / "docs" / "chat.md").read_text(encoding="utf-8")
_EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```\w+\n(.*?)```", _TEXT, re.DOTALL))


def test_openai_example_works(chat: Chat) -> None:
    code = _EXAMPLES["openai"].replace("http://127.0.0.1:8000", chat.address)
    done = run_python(code, settings={})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Hello from the model."


def test_examples_of_tools_responses_and_embeddings_work(chat: Chat) -> None:
    chat.model.script = lambda body: script_weather(body) if "umbrella" in last_text(body) else ["Marlin."]
    client = re.sub(r"stream = .*", "", _EXAMPLES["openai"], flags=re.DOTALL).replace("project atlas", chat.user)
    code = client + "".join(_EXAMPLES[name] for name in ("tools", "responses", "embeddings"))
    done = run_python(code.replace("http://127.0.0.1:8000", chat.address), settings={})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["It is rain.", "Marlin.", "384"]


def test_readme_example_continues_the_session(chat: Chat) -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"<!-- example: chat -->\n```\w+\n(.*?)```", readme, re.DOTALL)[0]
    chat.model.script = lambda body: [f"{_count_said(body)}: {last_text(body)}"]
    code = code.replace("http://127.0.0.1:8000", chat.address).replace("atlas", chat.user)
    done = run_python(code, settings={})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["1: Who leads Project Atlas?", "3: And Project Beacon?"]


def _count_said(body: dict[str, Any]) -> int:
    """Count the messages of user and model. How many instructions there are does not matter."""
    return sum(message["role"] in ("user", "assistant") for message in body["messages"])


def test_curl_examples_show_all_events_and_answer_the_card(chat: Chat) -> None:
    commands = re.findall(r"```sh\n(curl .*?)\n```", _TEXT, re.DOTALL)
    shown, answered = [
        subprocess.run(
            shlex.split(command.replace("http://127.0.0.1:8000", chat.address)),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for command in commands
    ]
    names = set(re.findall(r"^event: (\w+)$", shown, re.MULTILINE))
    assert names == {"reasoning", "progress", "tool_call", "metadata", "action_request", "done"}
    assert json.loads(answered)["choices"][0]["message"]["content"] == "Hello from the model."


def test_event_table_lists_all_events_with_their_fields() -> None:
    listed = {
        name: set(re.findall(r"`(\w+)`", fields))
        for name, fields in re.findall(r"^\| `(\w+)` \| (.*?) \|", _TEXT.split("## Events")[1].split("##")[0], re.M)
    }
    real = {kind.model_fields["type"].default: set(kind.model_fields) for kind in get_args(events.NamedEvent)}
    assert set(listed) == set(real)
    for name, fields in real.items():
        assert listed[name] - {"error"} == fields - {"type", "agent"}


def test_header_table_lists_all_headers() -> None:
    listed = re.findall(r"^\| `(X-[\w-]+)` ", _TEXT, re.MULTILINE)
    given = {"X-User-Id": "u", "X-Tenant-Id": "t", "X-Session-Id": "s", "X-Agent-Schema": "a", "X-Model-Name": "m"}
    given |= {"X-Is-Eval": "true", "X-Client-Id": "c"}
    assert set(listed) == set(given) | {"X-Chat-Is-Audio"}
    context = AgentContext.from_headers(given)
    assert (context.user_id, context.tenant_id, context.agent_schema_uri) == ("u", "t", "a")
    assert (context.default_model, context.client_id, context.is_eval) == ("m", "c", True)


def test_all_model_parameters_are_listed() -> None:
    text = _TEXT.split("`temperature`")[1].split("REM follows")[0]
    listed = {"temperature", "store", *re.findall(r"`(\w+)`", text)}
    assert listed == set(ChatRequest.model_fields) - {
        *("model", "messages", "stream", "stream_options", "n", "action_submit")
    }
