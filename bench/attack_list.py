"""Attacks on the service, and a bystander that measures how long another user waits meanwhile."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2 as httpx

from bench.model_server import serve_model

SETTLE_SECONDS = 0.3
PREPARE_ATTEMPTS = 5
"""On a busy machine the first SELECT, which also sets up the database, can exceed the short time limit."""
ATTACKER = {"X-User-Id": "attacker"}
BYSTANDER = {"X-User-Id": "bystander"}
SERVER_SETTINGS = {"SQL__TIMEOUT_SECONDS": "1", "SQL__MAX_MEMORY_BYTES": "128000000"}
"""Settings of the attacked server: short times, so that an attack does not take long."""
LARGE_ROWS = 100
FLOOD_BATCH = 100
STREAMS = 200
STREAM_SECONDS = 10.0
SLOW_ANSWER_CHARS = 2_000
SLOW_WORDS_PER_SECOND = 50
"""About 200 words, so that an answer takes four seconds."""
TIMEOUT_STATUS = 504
OTHER_ADDRESS = "127.0.0.2" if sys.platform == "linux" else ""
"""Another address of this machine. Without one, the bystander shares what an attack takes from its address."""
WORDS = " ".join(f"word{number}" for number in random.Random(1).sample(range(10**6), 20_000))
Send: TypeAlias = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


class Attack(NamedTuple):
    """A request, how many of them are sent at the same time, and the status and text of their answers."""

    send: Send
    times: int
    status: int | None
    """None: any below 500, or that the time of a read was over."""
    message: str
    """A regular expression."""
    seconds: float = 0.0
    """Time in which each request is sent again when it was answered: after a refusal, at the time that this names."""

    bystander_address: str = ""
    """The address that the bystander asks from, if an attack takes the share of its own address."""

    async def run(self, http: httpx.AsyncClient) -> list[httpx.Response]:
        """Send all requests, and return the answers."""
        answers = await asyncio.gather(*(self._send_again_and_again(http) for _ in range(self.times)))
        return [answer for part in answers for answer in part]

    async def _send_again_and_again(self, http: httpx.AsyncClient) -> list[httpx.Response]:
        end = time.monotonic() + self.seconds
        answers = [await self.send(http)]
        while time.monotonic() < end:
            if answers[-1].status_code == 429:
                await asyncio.sleep(float(answers[-1].headers["Retry-After"]))
            answers.append(await self.send(http))
        return answers

    def expects(self, status: int) -> bool:
        """Return whether an answer may have a status."""
        return status < 500 or status == TIMEOUT_STATUS if self.status is None else status == self.status


@dataclass
class Latencies:
    """The seconds of each answer to a bystander, by the name of the question."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def live(self) -> float:
        """Return the slowest answer of /health/live."""
        return max(self.seconds["live"])

    @property
    def lookup(self) -> float:
        """Return the slowest LOOKUP, but one of fifty may be slower: others use the machine, too."""
        ordered = sorted(self.seconds["lookup"])
        return ordered[-1 - len(ordered) // 50]

    @property
    def lookup_p99(self) -> float:
        """Return the time of a LOOKUP that one of a hundred exceeds."""
        ordered = sorted(self.seconds["lookup"])
        return ordered[len(ordered) * 99 // 100]


def open_attacker(address: str) -> httpx.AsyncClient:
    """Return a client of the attacker, which closes unused connections before the server does."""
    limits = httpx.Limits(max_connections=STREAMS, keepalive_expiry=1.0)
    return httpx.AsyncClient(base_url=address, headers=ATTACKER, timeout=120, limits=limits)


@contextmanager
def attacked_settings() -> Iterator[dict[str, str]]:
    """Yield the settings of the attacked server, with a language model that takes some seconds for an answer."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "answer.txt")
        text.write_text(WORDS[:SLOW_ANSWER_CHARS])
        with serve_model(text, SLOW_WORDS_PER_SECOND) as model:
            yield {**SERVER_SETTINGS, "LLM__BASE_URL": model, "LLM__OPENAI_API_KEY": "unused"}


def prepare_bystander(address: str) -> None:
    """Store what the bystander asks for and what attacks read, and let the server load what it loads once."""
    row = {"name": "Blue door", "content": "The door is blue."}
    answer = httpx.post(f"{address}/api/v1/entities/resources", json=row, headers=BYSTANDER, timeout=60)
    assert answer.status_code == 201, answer.text
    for number in range(LARGE_ROWS):
        answer = httpx.post(
            f"{address}{ROWS}",
            content=f'{{"name":"Large {number}","metadata":{{"values":[{fill("1,", 38_000)}1]}}}}',
            headers={**ATTACKER, "Content-Type": "application/json"},
            timeout=60,
        )
        assert answer.status_code == 201, answer.text
    tower = {"name": "Tower", "content": "x" * 2_000_000}
    answer = httpx.post(f"{address}{ROWS}", json=tower, headers=ATTACKER, timeout=60)
    assert answer.status_code == 201, answer.text
    # The first SELECT of a database sets up its role, and the first SEARCH loads the model.
    for text in ("SELECT 1", "SEARCH door"):
        for _ in range(PREPARE_ATTEMPTS):
            answer = httpx.post(f"{address}/api/v1/query", json={"query": text}, headers=BYSTANDER, timeout=60)
            if answer.status_code == 200:
                break
        assert answer.status_code == 200, answer.text


@contextmanager
def bystander(address: str, source: str = "") -> Iterator[Latencies]:
    """Let another user ask the server again and again, in a process of its own, and measure the answers."""
    url = urlsplit(address)
    latencies = Latencies()
    script = str(Path(__file__).with_name("probe.py"))
    with subprocess.Popen(
        [sys.executable, "-I", script, str(url.hostname), str(url.port), source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            time.sleep(SETTLE_SECONDS)
            yield latencies
            time.sleep(SETTLE_SECONDS)
        finally:
            process.stdin.close()
            answers = [line.split() for line in process.stdout]
    for name, seconds, status in answers:
        assert status == "200", f"{name} was answered with {status}"
        latencies.seconds.setdefault(name, []).append(float(seconds))


def query(text: str, **fields: Any) -> Send:
    """Return a query."""
    return lambda http: http.post("/api/v1/query", json={"query": text, **fields})


def chat(text: str) -> Send:
    """Return a message to an agent."""
    return lambda http: http.post("/api/v1/chat/completions", json={"messages": [{"role": "user", "content": text}]})


def stream_chat(model: str) -> Send:
    """Return a question to an agent, whose answer is streamed."""
    body = {"messages": [{"role": "user", "content": "What do we know about the blue door?"}], "stream": True}
    return lambda http: http.post("/api/v1/chat/completions", json=body, headers={"X-Model-Name": model})


def post(path: str, body: str) -> Send:
    """Return a JSON body, which need not be valid."""
    headers = {"Content-Type": "application/json"}
    return lambda http: http.post(path, content=body, headers=headers)


def upload(name: str, data: bytes) -> Send:
    """Return an upload that waits until the file is processed."""
    return lambda http: http.post("/api/v1/files", files={"files": (name, data)}, params={"wait": "20"})


async def flood(http: httpx.AsyncClient, number: int) -> None:
    """Upload many small files that a worker reads one after the other."""
    for first in range(0, number, FLOOD_BATCH):
        files = [("files", (f"flood-{n}.txt", f"Note {n}. {WORDS[:2_000]}")) for n in range(first, first + FLOOD_BATCH)]
        answer = await http.post("/api/v1/files", files=files)
        assert answer.status_code == 202, answer.text[:200]


def upload_many(number: int) -> Send:
    """Return a form of very many small files."""
    files = [("files", (f"{index}.txt", b"x")) for index in range(number)]
    return lambda http: http.post("/api/v1/files", files=files)


def note_and_ask(name: str, content: str, question: str) -> Send:
    """Store a note, and return a question about it to the agent."""

    async def send(http: httpx.AsyncClient) -> httpx.Response:
        await http.post(ROWS, json={"name": name, "content": content})
        return await chat(question)(http)

    return send


def note_and_dream(name: str, content: str) -> Send:
    """Store a note, and return a dream that reads it."""

    async def send(http: httpx.AsyncClient) -> httpx.Response:
        await http.post(ROWS, json={"name": name, "content": content})
        return await http.post("/api/v1/dreams", json={})

    return send


def call_tool(name: str, **arguments: Any) -> Send:
    """Return the call of a tool over MCP."""
    params = {"name": name, "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"Accept": "application/json, text/event-stream"}
    return lambda http: http.post("/api/v1/mcp", json=body, headers=headers)


def search_as_invented_users(text: str) -> Send:
    """Return a query, each time under another user id."""
    numbers = count()

    def send(http: httpx.AsyncClient) -> Awaitable[httpx.Response]:
        return http.post("/api/v1/query", json={"query": text}, headers={"X-User-Id": f"invented-{next(numbers)}"})

    return send


def store_and_search(notes: int) -> Send:
    """Store notes at the same moment, and return a search that meets them while they are indexed."""

    async def send(http: httpx.AsyncClient) -> httpx.Response:
        rows = [{"name": f"Tide {uuid4()}", "content": f"{WORDS[:3_000]}"} for _ in range(notes)]
        stored = await asyncio.gather(*(http.post(ROWS, json=row) for row in rows))
        assert all(answer.status_code == 201 for answer in stored), [answer.text[:200] for answer in stored]
        return await query("SEARCH tide FROM resources LIMIT 1")(http)

    return send


def approve_six_times() -> Send:
    """Let a tool ask for consent, and give it six times at the same moment with different arguments."""

    async def send(http: httpx.AsyncClient) -> httpx.Response:
        await http.post(ROWS, json={"name": "Pier", "content": "The pier is 100 m long."})
        await call_tool("correct", what="Pier", to="The pier is 90 m long.")(http)
        request = (await http.get("/api/v1/approvals", params={"status": "pending"})).json()["data"][0]
        bodies = [
            {"decision": "approve", "parameters": {"what": "Pier", "to": f"The pier is {number} m long."}}
            for number in range(6)
        ]
        path = f"/api/v1/approvals/{request['id']}/decision"
        answers = await asyncio.gather(*(http.post(path, json=body) for body in bodies))
        codes = sorted(answer.status_code for answer in answers)
        assert codes[1:] == [409] * 5, [answer.text[:200] for answer in answers]
        return next(answer for answer in answers if answer.status_code != 409)

    return send


def tell_and_search(told: str, asked: str, *, erases: bool = False) -> Send:
    """Tell a statement, perhaps erase it for good, and return a search for it in all messages."""

    async def send(http: httpx.AsyncClient) -> httpx.Response:
        headers = {"X-User-Id": f"teller-{uuid4()}", "X-Session-Id": str(uuid4())}
        body = {"messages": [{"role": "user", "content": told}]}
        assert (await http.post(CHAT, json=body, headers=headers)).status_code == 200
        if erases:
            rows = await http.get(f"/api/v1/sessions/{headers['X-Session-Id']}/messages", headers=headers)
            path = f"/api/v1/messages/{rows.json()['data'][0]['id']}"
            assert (await http.delete(path, params={"erase": "true"}, headers=headers)).status_code == 204
            return await http.get(f"/api/v1/sessions/{headers['X-Session-Id']}/messages", headers=headers)
        return await http.post("/api/v1/query", json={"query": f"SEARCH {asked}"}, headers=headers)

    return send


def invent_and_search(invented: str, told: str, asked: str) -> Send:
    """Store what an assistant invented and what the user told, and return a search for the former."""

    async def send(http: httpx.AsyncClient) -> httpx.Response:
        headers = {"X-User-Id": f"listener-{uuid4()}", "X-Session-Id": str(uuid4())}
        messages = [{"role": "assistant", "content": invented}, {"role": "user", "content": told}]
        assert (await http.post(CHAT, json={"messages": messages}, headers=headers)).status_code == 200
        return await http.post("/api/v1/query", json={"query": f'SEARCH "{asked}"'}, headers=headers)

    return send


def fill(text: str, length: int) -> str:
    """Repeat a text up to a length."""
    return text * (length // len(text))


def get(path: str) -> Send:
    """Return a request without a body."""
    return lambda http: http.get(path)


def agent(text: str) -> Send:
    """Return the definition of an agent in YAML, which need not be valid."""
    headers = {"Content-Type": "application/yaml"}
    return lambda http: http.put("/api/v1/agents/x", content=text, headers=headers)


LISTS = (
    "WITH x AS MATERIALIZED (SELECT array_agg(i) a, array_agg(-i) b, array_agg(300001 - i) c "
    "FROM generate_series(1, 300000) i)"
)
TEXT = "WITH x AS MATERIALIZED (SELECT string_agg('a', '') a FROM generate_series(1, 2000000))"
OBJECTS = (
    "WITH x AS MATERIALIZED (SELECT jsonb_object_agg(md5(i::text), 1) a, jsonb_agg(md5(i::text)) b, "
    "array_agg(i::text) c FROM generate_series(1, 100000) i)"
)
SHAPES = (
    "WITH x AS MATERIALIZED (SELECT ('(' || string_agg('(' || i || ',0)', ',') || ')')::polygon a, "
    "('(' || string_agg('(' || i || ',9)', ',') || ')')::polygon b FROM generate_series(1, 50000) i)"
)
DEAF_STATEMENTS = {
    "overlap of arrays": f"{LISTS} SELECT a && b FROM x",
    "array in array": f"{LISTS} SELECT a @> c FROM x",
    "split_part": f"{TEXT} SELECT length(split_part(a, 'b' || substr(a, 1, 1000000), 2)) FROM x",
    "string_to_array": f"{TEXT} SELECT cardinality(string_to_array(a, 'b' || substr(a, 1, 1000000))) FROM x",
    "removal of keys": f"{OBJECTS} SELECT a - c = b FROM x",
    "any of the keys": f"{OBJECTS} SELECT b ?| c FROM x",
    "distance of polygons": f"{SHAPES} SELECT a <-> b FROM x",
}
"""Statements inside of which PostgreSQL does not look for interrupts for minutes."""
DOUBLING = "WITH a0 AS NOT MATERIALIZED (SELECT 1 AS x)" + "".join(
    f", a{n} AS NOT MATERIALIZED (SELECT l.x FROM a{n - 1} l, a{n - 1} r)" for n in range(1, 23)
)
HUNGRY_STATEMENTS = {
    "doubling": f"{DOUBLING} SELECT count(*) FROM a22",
    "long text": "SELECT length(string_agg(md5(i::text), '')) FROM generate_series(1, 8000000) i",
}
TOWER_KEYS = [
    f"{table}{''.join(letters)}" for table in ("", "resources/") for letters in product("tT", "oO", "wW", "eE", "rR")
]
"""All of them name the same row."""
CHAT = "/api/v1/chat/completions"
BACKTRACKING = (
    f"Who is {'A' * 36}, hm?",
    "Who is BARTHOLOMEW FEATHERSTONEHAUGH, again?",
    f"yes {'do it ' * 40}x",
    f"Change the {'a' * 5000}, thanks",
    f"My password for{' ' * 4000}x",
)
"""Messages that made a regular expression of an earlier version try more and more ways to match."""
ASK, QUESTION = "/api/v1/ask", '{"question":"Where is the blue door?"}'
EMBEDDED = '{"input":[' + ",".join(f'"{WORDS[start : start + 1_500]}"' for start in range(8)) + "]}"
ROWS = "/api/v1/entities/resources"
EDGE = '{"dst":"a","rel_type":"b"},'
MANY_PARTS = '{"role":"user","content":[' + ",".join(['{"type":"x"}'] * 9_000) + "]}"
UNKNOWN_FIELDS = ",".join(f'"f{number}":0' for number in range(19_000))
SLOW_QUERY = "SELECT count(*) FROM (SELECT generate_series(1, 100000000000)) AS numbers"
"""Counts row by row. `FROM generate_series(…)` would write its rows to disk first, and end at the limit for that."""
_REQUESTS: dict[str, tuple[Send, int, int | None, str]] = {
    # On a busy machine the answer may come before the statement has ended.
    **{f"sql: {name}": (query(text), 4, 400, "(was|is being) stopped") for name, text in DEAF_STATEMENTS.items()},
    **{f"sql memory: {name}": (query(text), 4, 400, "limit|took") for name, text in HUNGRY_STATEMENTS.items()},
    "sql: many slow queries": (query(SLOW_QUERY), 30, 400, "was stopped|running|waiting"),
    "sql: long statement": (query("SELECT " + ",".join(["1"] * 9_900)), 10, 400, ""),
    "many OR terms": (query("SEARCH x WHERE " + "name = 'a' OR " * 300_000 + "a = 1"), 1, 400, "at most 100,000"),
    "OR terms at the limit": (query("SEARCH x FROM resources WHERE " + " OR ".join(["name = 'a'"] * 1200)), 5, 200, ""),
    "too many OR terms": (query("SEARCH x WHERE " + " OR ".join(["a = 1"] * 9_000)), 5, 400, "at most 5,000 words"),
    "many keys": (query("LOOKUP " + ",".join(f"k{n}" for n in range(200_000))), 1, 400, "at most 100,000"),
    "too many keys": (query("LOOKUP " + ",".join(f"k{n}" for n in range(15_000))), 5, 400, "at most 1,000 keys"),
    "keys at the limit": (query("LOOKUP " + ",".join(f"k{n}" for n in range(1_000))), 10, 200, ""),
    "long search": (query(f'SEARCH "{WORDS[:99_000]}"'), 4, 200, ""),
    "long question": (query(fill("Where is Sarah Chen? ", 290_000), mode="natural-language"), 4, 200, ""),
    "deep JSON": (post(CHAT, '{"messages":' + "[" * 200_000 + "]" * 200_000 + "}"), 2, None, ""),
    "many JSON values": (post(CHAT, '{"messages":[' + "0," * 15_000_000 + "0]}"), 1, 413, "20,000 values"),
    "many invalid parts": (post(CHAT, f'{{"messages":[{MANY_PARTS}]}}'), 4, 422, "at most 1000 items"),
    "many objects": (post(ROWS, f'{{"name":"o","metadata":{{"a":[{fill("{},", 27_000)}0]}}}}'), 4, None, ""),
    "many edges": (post(ROWS, f'{{"name":"e","graph_edges":[{fill(EDGE, 130_000)}{{"dst":"z"}}]}}'), 2, None, ""),
    "many unknown fields": (post(ROWS, f"{{{UNKNOWN_FIELDS}}}"), 4, 400, "no such field"),
    "dense YAML": (agent("- a\n" * 64_000), 2, 400, "more than 20,000 values"),
    "long order": (get(f"{ROWS}?order_by={'name,' * 10_000}name"), 2, 400, "at most 50 fields"),
    "page of large rows": (get(f"{ROWS}?where=name%20LIKE%20'Large%25'&limit=500"), 2, 200, "Large 99"),
    "lookup of large rows": (query("LOOKUP " + ",".join(f"large-{n}" for n in range(LARGE_ROWS))), 2, 200, "Large 99"),
    "one large row by many keys": (query("LOOKUP " + ",".join(TOWER_KEYS)), 4, 400, "more than 64 MiB"),
    "graph of many edges": (get("/api/v1/graph?key=large-1&depth=5&limit=2000"), 20, 200, "large-1"),
    "plans to forget": (
        post("/api/v1/forget/preview", '{"name":"Large 1","mentions":true}'),
        10,
        None,
        "fingerprint|took longer",
    ),
    "audits of dreams": (get("/api/v1/dreams/audit"), 20, 200, "counts"),
    "many parameters": (get(f"{ROWS}?{fill('a=1&', 60_000)}"), 10, 400, "1,000 parameters"),
    "form of many files": (upload_many(5_000), 2, 400, "Too many files"),
    "question marks": (query("?" * 19_999 + "x", mode="natural-language"), 2, 200, ""),
    "large JSON": (post("/api/v1/query", '{"query":"' + "x" * 9_000_000 + '"}'), 2, 413, "8,000,000 bytes"),
    "API document": (get("/openapi.json"), 2, 200, "entities"),
    "first dreams": (post("/api/v1/dreams", "{}"), 1, 200, ""),
    "long chat": (chat(WORDS * 4), 1, 200, ""),
    "search in a long chat": (query(f'SEARCH "{WORDS[:9_000]}" FROM messages'), 2, 200, ""),
    "chat of card numbers": (chat(fill("4111 1111 ", 900_000)), 1, 200, ""),
    "chat of quoted lines": (chat(fill("> quoted line of text here\n", 1_000_000)), 1, 200, ""),
    "chat of questions": (chat(fill("What about Sarah Chen? ", 1_000_000)), 1, 200, ""),
    **{f"chat that backtracks: {text[:20]}": (chat(text), 2, 200, "") for text in BACKTRACKING},
    "note of dashes": (
        note_and_ask("Walk", f"# Walk\n\n{'-' * 1200}x\n{'*' * 1200}x\n", "where is the walk?"),
        1,
        200,
        "",
    ),
    "note of spaces, and a dream": (note_and_dream("Door", f"My password for{' ' * 4000}x"), 1, 200, ""),
    "long searches over MCP": (
        call_tool("search_rem", query=f'SEARCH "{fill("walk ", 15_000)}"'),
        60,
        None,
        "result|too_many_queries",
    ),
    "questions at once": (post(ASK, QUESTION), 60, None, "hits|too_many_queries"),
    "embeddings": (post("/v1/embeddings", EMBEDDED), 40, None, "embedding|too_many_queries"),
    "searches while rows are indexed": (store_and_search(4), 8, 200, '"count":1'),
    "six approvals at once": (approve_six_times(), 1, 200, ""),
    "bare fact": (tell_and_search("I'm diabetic.", "diabetic"), 1, 200, "diabetic.*diabetic"),
    "erased message": (tell_and_search("The vault code is zebra.", "", erases=True), 1, 200, r"(?s)\A(?!.*zebra)"),
    "invented answer": (
        invent_and_search("Your sister lives in Turin.", "My sister likes to swim.", "Where does my sister live?"),
        1,
        200,
        r'"results":\[(?:(?!"said_by").)*?"record"',
    ),
    "table of one line": (upload("line.csv", b"a," * 5_000_000), 1, None, ""),
    "long text": (upload("words.txt", (WORDS * 5).encode()), 1, None, ""),
}
_STREAMED = r"\[DONE\]|too_many_chats"
ATTACKS = {
    **{name: Attack(*request) for name, request in _REQUESTS.items()},
    "searches of invented users": Attack(
        search_as_invented_users('SEARCH "walk about the door"'),
        STREAMS,
        None,
        "results|too_many_queries",
        bystander_address=OTHER_ADDRESS,
    ),
    "streams without a model": Attack(stream_chat("rem:local"), STREAMS, None, _STREAMED, STREAM_SECONDS),
    "streams of a slow model": Attack(stream_chat("openai:bench"), STREAMS, None, _STREAMED, STREAM_SECONDS),
}
