"""Attacks on the HTTP API, made from its list of routes. A route that is not described here fails the tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any
from urllib.parse import quote

import httpx2
from fastapi import FastAPI

from rem.auth.access import DOCS_PATH, WEB_ASSETS, WEB_ICON, WEB_PAGES
from tests.security.victim import AGENT_NAME, AGENT_YAML, ALICE, NAME, SECRET, Victim

API = "/api/v1"
ROW_ID = "the id of the row"
PUBLIC = {
    *(("GET", path) for path in ("/openapi.json", DOCS_PATH)),
    *(("GET", path) for path in ("/health", "/health/live", "/health/ready")),
    *(("GET", f"{prefix}/models{rest}") for prefix in (API, "/v1") for rest in ("", "/{model:path}")),
    *(("GET", path) for path in (*WEB_PAGES, f"{WEB_ASSETS}/{{name}}", WEB_ICON)),
    *(("GET", f"{path}/{{rest:path}}") for path in WEB_PAGES if path != "/"),
}
"""Routes that have no objects of users."""
AUTH = "/api/auth"
LOGIN = {
    *(("GET", path) for path in ("/api/dev/token", f"{AUTH}/me", f"{AUTH}/providers")),
    *(("GET", f"{AUTH}/{{provider}}/{step}") for step in ("login", "callback")),
    *((method, f"{AUTH}/oauth/{step}") for method in ("GET", "POST") for step in ("authorize", "consent")),
    *(("POST", f"{AUTH}/oauth/{step}") for step in ("register", "revoke", "token")),
    *(("POST", f"{AUTH}/{step}") for step in ("logout", "refresh", "tokens")),
    *(("GET", f"/.well-known/oauth-{name}") for name in ("authorization-server", "protected-resource")),
    ("GET", f"/.well-known/oauth-protected-resource{API}/mcp"),
}
"""Routes that log the caller in or out and name no object. The tests of authentication attack them."""
MCP = {(method, f"{API}/mcp{slash}") for method in ("GET", "POST", "DELETE") for slash in ("", "/")}
"""`test_mcp.py` attacks them."""
WRITES_OWN_ROW = {
    *((method, f"{API}/agents{rest}") for method, rest in (("POST", ""), ("PUT", "/{name}"))),
    *((method, f"{API}/entities/{{table}}") for method in ("GET", "POST")),
}
"""Routes that may succeed with a name of Alice, because they read or write the caller's own row of that name."""


CREATES_OWN_ROW = {
    *WRITES_OWN_ROW,
    *(("POST", f"{prefix}/{path}") for prefix in (API, "/v1") for path in ("chat/completions", "responses")),
    *(("POST", f"{prefix}/embeddings") for prefix in (API, "/v1")),
    ("POST", f"{API}/sessions"),
}


@dataclass(frozen=True, slots=True)
class Attack:
    """A request for an object of Alice. `is_refused`: it names one, so the answer is as for a missing one."""

    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    is_refused: bool = False
    checks_names: bool = True
    """False if the caller may have a row of the same name by then."""

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.body or ''} {self.headers or ''}"


def list_routes(app: FastAPI) -> set[tuple[str, str]]:
    """Return method and path of all routes, hidden ones too."""
    found: set[tuple[str, str]] = set()
    for route in app.routes:
        contexts = route.effective_route_contexts() if hasattr(route, "effective_route_contexts") else [route]
        for context in contexts:
            methods = getattr(context, "methods", None) or {"GET", "POST", "DELETE"}
            found |= {(method, str(getattr(context, "path", ""))) for method in methods - {"HEAD", "OPTIONS"}}
    return found


def list_attacks(routes: set[tuple[str, str]], victim: Victim) -> Iterator[Attack]:
    """Yield the attacks on all routes. Raise KeyError for a route whose parameters or body are not described."""
    bodies = _describe_bodies(victim)
    attacked = routes - PUBLIC - LOGIN - MCP
    yield from _attack_with_parameters(victim)
    # What creates a row of the same name comes last: the name means that row then.
    for method, path in (*sorted(attacked - CREATES_OWN_ROW), *sorted(attacked & CREATES_OWN_ROW)):
        if method in ("POST", "PUT", "PATCH") and (method, path) not in bodies:
            raise KeyError(f"Describe a body that attacks {method} {path} in {__name__}.")
        names_object = _has_object(path) and (method, path) not in WRITES_OWN_ROW
        for filled in _fill_path(path, victim):
            for body in bodies.get((method, path), [None]):
                is_first = (method, path) not in CREATES_OWN_ROW
                yield Attack(
                    method, filled, _fill_body(body, filled, victim), is_refused=names_object, checks_names=is_first
                )
    yield from _attack_with_headers(victim)


async def send_attack(http: httpx2.AsyncClient, attack: Attack, headers: dict[str, str]) -> httpx2.Response:
    """Send the request of an attack, with the headers of a caller."""
    headers = {**headers, **attack.headers}
    if isinstance(attack.body, str):
        body = {"content": attack.body, "headers": {**headers, "Content-Type": "application/yaml"}}
    else:
        body = {"headers": headers, **({} if attack.body is None else {"json": attack.body})}
    return await http.request(attack.method, attack.path, **body)  # type: ignore[arg-type]


def _fill_body(body: Any, path: str, victim: Victim) -> Any:
    """Return the body with the id of Alice's row of the table that the path names."""
    if not isinstance(body, dict) or body.get("id") != ROW_ID:
        return body
    row_id, _ = victim.rows[path.rpartition("/")[2]]
    return {**body, "id": str(row_id)}


def _has_object(path: str) -> bool:
    return "{" in path


def _fill_path(path: str, victim: Victim) -> Iterator[str]:
    """Yield the path with Alice's identifiers in place of its parameters."""
    if path.startswith((f"{API}/entities/{{table}}/", f"{API}/restore/{{table}}/")):
        for table, (row_id, key) in victim.rows.items():
            for identifier in (str(row_id), key):
                yield re.sub(r"\{key:path\}", identifier, path.replace("{table}", table))
        return
    names = re.findall(r"\{(.*?)\}", path)
    for values in product(*(_list_values(path, name, victim) for name in names)):
        filled = path
        for name, value in zip(names, values, strict=True):
            filled = filled.replace(f"{{{name}}}", value)
        yield filled


def _list_values(path: str, name: str, victim: Victim) -> list[str]:
    values: dict[str, list[str]] = {
        "session": [str(victim.session_id), victim.session_name],
        "message": [str(victim.message_id), victim.message_key],
        "file_id:uuid": [str(victim.file_id)],
        "table": list(victim.rows),
        "user": ["carol@example.com"],
        "key": list(victim.api_key),
        "login": [victim.login_id],
        "approval": [str(victim.rows["approvals"][0])],
        "run": [str(victim.dream_run)],
        "job": [str(victim.job)],
    }
    if path.startswith(f"{API}/admin/"):
        values["user"] = [victim.user_id, ALICE]
    if path.startswith(f"{API}/agents/"):
        values["name"] = [AGENT_NAME]
    if path.startswith(f"{API}/moments/"):
        values["key:path"] = [str(part) for part in victim.rows["moments"]]
    if name not in values:
        raise KeyError(f"Say which identifiers of Alice fit the parameter {name!r} of {path} in {__name__}.")
    return values[name]


def list_queries(victim: Victim) -> list[str]:
    """Return queries for Alice's rows: by key, by words, by edges, and by SQL that tries to leave the scope."""
    tables = ", ".join(f"{table} {table}_" for table in ("resources", "messages"))
    scope = f"""[1, 1, "default", "{victim.user_id}"]"""
    return [
        *(f'LOOKUP "{identifier}"' for identifier in victim.identifiers),
        f'LOOKUP "users/{NAME}@example.com"',
        f'FUZZY "{NAME}" THRESHOLD 0.1 LIMIT 50',
        'SEARCH "The word is" LIMIT 50',
        f'SEARCH "{NAME} file" MODE text',
        f"SEARCH \"I say\" FROM messages WHERE user_id = '{victim.user_id}'",
        f'TRAVERSE FROM "{victim.rows["resources"][1]}" DIRECTION both DEPTH 3',
        f'TRAVERSE WITH (LOOKUP "{victim.rows["resources"][1]}") DEPTH 2',
        *(f"SQL SELECT * FROM {table} LIMIT 50" for table in victim.rows),
        "SQL SELECT * FROM kv_store LIMIT 50",
        "SQL SELECT * FROM edges LIMIT 50",
        f"SQL SELECT * FROM resources WHERE user_id = '{victim.user_id}' OR true",
        f"SQL SELECT count(*) AS rows FROM {tables} WHERE true",
        f"SQL WITH s AS MATERIALIZED (SELECT set_config('rem.scope', '{scope}', false)) SELECT r.* FROM s, resources r",
        "SQL SELECT * FROM passages",
        "SQL SELECT * FROM sql_access",
        "SQL SELECT * FROM installation",
        "SQL SELECT * FROM statements",
        "SQL SELECT * FROM pg_stats",
        "SQL SELECT pg_read_file('postgresql.conf')",
        "SQL SELECT query FROM pg_stat_activity",
        f"SQL SELECT 1; SELECT * FROM resources WHERE content LIKE '%{SECRET[:4]}%'",
        f"SQL SELECT query_to_xml('SELECT * FROM rem.resources', true, true, '') -- {NAME}",
        'LOOKUP "x\'; DELETE FROM rem.resources; --"',
        "SEARCH \"x\" WHERE name = '' OR user_id IS NOT NULL",
    ]


def _describe_bodies(victim: Victim) -> dict[tuple[str, str], list[Any]]:
    """Return the bodies for each route that has one. Bodies that name Alice's rows try to read or change them."""
    session, chat = str(victim.session_id), {"messages": [{"role": "user", "content": "What do I know?"}]}
    users_row = {"user_id": victim.user_id, "tenant_id": "default"}
    approval, _ = victim.rows["approvals"]
    return {
        ("POST", f"{API}/query"): [
            *({"query": text} for text in list_queries(victim)),
            {"query": f"who is {NAME} person?", "mode": "natural-language"},
            {"mode": "staged-plan", "plan": {"stages": [{"id": "a", "query": 'SEARCH "say"'}]}},
            {"query": f"{NAME} person", "mode": "plain-words"},
            {"query": "LOOKUP x", "user_id": victim.user_id},
        ],
        ("POST", f"{API}/ask"): [
            {"question": f"who is {NAME} person?"},
            {"question": SECRET},
            *({"question": text} for text in list_queries(victim)),
            {"question": "And when?", "previous": f"who is {NAME} person?"},
            {"question": "What did I say?", "user_id": victim.user_id},
        ],
        ("POST", f"{API}/query/parse"): [{"query": f'LOOKUP "{victim.rows["resources"][1]}"'}],
        ("POST", f"{API}/forget/preview"): [
            {"name": name, "mentions": mentions} for name in (f"{NAME} note", SECRET[:4]) for mentions in (False, True)
        ],
        ("POST", f"{API}/forget"): [
            {"name": f"{NAME} note", "mentions": True, "fingerprint": victim.forget_fingerprint}
        ],
        ("POST", f"{API}/dreams"): [None],
        ("POST", f"{API}/dreams/audit"): [None],
        ("POST", f"{API}/jobs/{{job}}/retry"): [None],
        ("PUT", f"{API}/sample"): [None],
        ("POST", f"{API}/dreams/{{run}}/undo"): [None],
        **{
            ("POST", f"{prefix}/chat/completions"): [
                chat,
                {**chat, "user": victim.user_id},
                {**chat, "action_submit": {"card_id": f"approval-{approval}", "action_id": "approve"}},
            ]
            for prefix in (API, "/v1")
        },
        **{
            ("POST", f"{prefix}/responses"): [
                {"input": "What did I say?"},
                {"input": "What did I say?", "user": victim.user_id},
            ]
            for prefix in (API, "/v1")
        },
        **{("POST", f"{prefix}/embeddings"): [{"input": "What did I say?"}] for prefix in (API, "/v1")},
        ("POST", f"{API}/sessions"): [{"id": session}, {"name": victim.session_name}, {"id": session, "name": "x"}],
        ("PATCH", f"{API}/sessions/{{session}}"): [{"name": "taken"}, {"system_prompt": "obey"}],
        ("POST", f"{API}/sessions/{{session}}/restore"): [None],
        ("POST", f"{API}/sessions/{{session}}/clear"): [None, {"from_index": 0}],
        ("POST", f"{API}/sessions/{{session}}/clone"): [{}, {"name": "copy"}],
        ("POST", f"{API}/sessions/{{session}}/share"): [{"user": "dave@example.com"}],
        ("POST", f"{API}/sessions/{{session}}/actions"): [{"card_id": victim.card_id, "action_id": "ok"}],
        ("POST", f"{API}/approvals/{{approval}}/decision"): [{"decision": "approve"}, {"decision": "reject"}],
        ("PATCH", f"{API}/messages/{{message}}"): [{"important": True}],
        ("POST", f"{API}/feedback"): [
            {"session_id": session, "rating": 1},
            {"message_id": str(victim.message_id), "rating": 1},
            {"message_id": victim.message_key, "rating": 1},
        ],
        ("POST", f"{API}/files"): [None],
        ("POST", f"{API}/files/uri"): [{"uri": "file:///etc/passwd"}, {"uri": "http://127.0.0.1:1/"}],
        ("POST", f"{API}/agents"): [AGENT_YAML.replace(SECRET, "nothing")],
        ("PUT", f"{API}/agents/{{name}}"): [AGENT_YAML.replace(SECRET, "nothing")],
        ("POST", f"{API}/agents/{{name}}/run"): [{"input": "Say your word."}],
        ("POST", f"{API}/entities/{{table}}"): [
            {"id": ROW_ID, "name": "taken", "content": "taken"},
            {"name": f"{NAME} note", "content": "mine", **users_row},
        ],
        ("POST", f"{API}/sessions/{{session}}/start-over"): [None],
        ("PATCH", f"{API}/admin/users/{{user}}"): [{"role": "admin"}, {"disabled": True}],
        ("POST", f"{AUTH}/keys"): [{"name": "mine", "user": ALICE, **users_row}],
        ("PATCH", f"{API}/entities/{{table}}/{{key:path}}"): [{"metadata": {"taken": True}}, users_row],
        ("POST", f"{API}/restore/{{table}}/{{key:path}}"): [None],
    }


def _attack_with_parameters(victim: Victim) -> Iterator[Attack]:
    """Yield requests that name Alice's rows in their parameters."""
    for key in victim.identifiers:
        yield Attack("GET", f"{API}/graph?key={quote(key)}&depth=3")
        yield Attack("GET", f"{API}/statements?key={quote(key)}")
        yield Attack("GET", f"{API}/query/keys?prefix={quote(key[:4])}")


def _attack_with_headers(victim: Victim) -> Iterator[Attack]:
    """Yield requests that name Alice's session in a header."""
    chat = {"messages": [{"role": "user", "content": "What did I say?"}]}
    for session in (str(victim.session_id), victim.session_name):
        headers = {"X-Session-Id": session}
        for path in (
            f"{API}/sessions",
            f"{API}/shared-with-me",
            f"{API}/moments",
            f"{API}/feedback",
            f"{API}/approvals",
        ):
            yield Attack("GET", path, headers=headers, checks_names=False)
        run = {"input": "What did I say?", "session_id": session}
        yield Attack("POST", f"{API}/chat/completions", chat, headers, checks_names=False)
        response_id = f"resp_{victim.session_id.hex}_{'0' * 32}"
        earlier = {"input": "What did I say?", "previous_response_id": response_id}
        yield Attack("POST", f"{API}/responses", earlier, checks_names=False)
        yield Attack("POST", f"{API}/agents/rem/run", run, checks_names=False)
        yield Attack("POST", f"{API}/query", {"query": "SQL SELECT * FROM messages"}, headers, checks_names=False)
