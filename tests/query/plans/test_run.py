"""Plans run their stages in order, in parallel where possible, and report failures by stage."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.errors import DatabaseUnavailableError, InvalidInputError
from rem.models import Edge, Resource, User
from rem.query.executor import QueryExecutor
from rem.query.plans.plan import MAX_STAGES, Plan, PlanResult, Stage
from rem.query.plans.run import MAX_CONCURRENT_QUERIES, MAX_RUNS_PER_STAGE, run_plan
from rem.query.result import QueryResult
from rem.query.syntax_tree import Fuzzy, Lookup, Query, Search, Sql
from rem.settings import EmbeddingSettings, Settings

ALICE = "alice@example.com"


@pytest.fixture
async def rem(settings: Settings) -> AsyncIterator[Rem]:
    """Open REM without an embedder."""
    async with Rem.open(settings.model_copy(update={"embedding": EmbeddingSettings(provider="none")})) as rem:
        yield rem


def plan(answer: str | None = None, **queries: str | dict[str, Any]) -> dict[str, Any]:
    """Return a plan with one stage for each keyword argument: its query, or all of its fields."""
    stages = [
        {"id": name, **(stage if isinstance(stage, dict) else {"query": stage})} for name, stage in queries.items()
    ]
    return {"stages": stages, **({"answer": answer} if answer else {})}


def keys(result: PlanResult, stage: str) -> list[Any]:
    return [row["key"] for row in result[stage].result.results]


class ScriptedExecutor(QueryExecutor):
    """An executor without a database. It records the queries, and how many run at the same time."""

    def __init__(self, rows: list[dict[str, Any]] | None = None, broken: str = "") -> None:
        self.rows = rows if rows is not None else [{"key": "x"}]
        self.broken = broken
        self.ran: list[Query] = []
        self.running = 0
        self.max_running = 0

    async def run(self, query: str | Query, text: str | None = None) -> QueryResult:
        assert not isinstance(query, str), "a stage must not run as text"
        self.ran.append(query)
        self.running += 1
        self.max_running = max(self.running, self.max_running)
        await asyncio.sleep(0.01)
        self.running -= 1
        if self.broken and self.broken in str(query):
            raise DatabaseUnavailableError("The database does not answer.")
        return QueryResult(type(query).__name__.upper(), self.rows)


async def run_scripted(stages: dict[str, Any], executor: ScriptedExecutor | None = None) -> PlanResult:
    return await run_plan(executor or ScriptedExecutor(), Plan.parse(stages))


async def test_rows_of_a_stage_are_values_in_the_next(rem: Rem) -> None:
    alice = rem.store(ALICE)
    await alice.upsert(User(name="Ada"))
    await alice.upsert(User(name="Bo", summary="Bo tends the orchard."))
    await alice.upsert(
        Resource(name="Report", graph_edges=[Edge(dst="ada", rel_type="by"), Edge(dst="bo", rel_type="by")])
    )
    await alice.upsert(Resource(name="Trees", content="Apples in the orchard."))
    result = await rem.run_plan(
        plan(
            report="LOOKUP Report",
            authors="TRAVERSE FROM {report.key} TYPE by",
            people="LOOKUP {authors.key} IN users",
            about="SEARCH \"orchard\" FROM resources WHERE name NOT IN ('{people.record.name}')",
            count="SELECT count(*) AS n FROM users",
        ),
        user=ALICE,
    )
    assert [(stage.id, stage.status, stage.query) for stage in result.stages] == [
        ("report", "done", 'LOOKUP "Report"'),
        ("authors", "done", 'TRAVERSE FROM "report" TYPE "by"'),
        ("people", "done", 'LOOKUP "ada", "bo" FROM users'),
        ("about", "done", "SEARCH \"orchard\" FROM resources WHERE NOT (name IN ('Ada', 'Bo'))"),
        ("count", "done", "SELECT count(*) AS n FROM users"),
    ]
    assert keys(result, "people") == ["ada", "bo"]
    assert keys(result, "about") == ["trees"]
    assert result.results == [{"n": 2}]


async def test_stored_value_cannot_change_the_query(rem: Rem) -> None:
    alice, bob = rem.store(ALICE), rem.store("bob@example.com")
    hostile = [
        'x" IN users LIMIT 1',
        "x', 'secret",
        "secret, ada",
        "'; DROP TABLE rem.users; --",
        "{secret.key}",
        "{{names}}",
        "] LOOKUP secret",
        "a\\",
        '\\" OR name = "secret',
        "ᐁᐁᐁ",
    ]
    await bob.upsert(Resource(name="secret", content="Bob's secret."))
    await alice.upsert_many([Resource(name=name, metadata={"next": name}) for name in hostile])
    names = (await rem.run_plan(plan(names="SELECT name AS key FROM resources"), user=ALICE)).results
    assert {row["key"] for row in names} == set(hostile)
    result = await rem.run_plan(
        plan(
            names="SELECT name AS key FROM resources",
            again="LOOKUP {names.key}",
            walk="TRAVERSE FROM {names.key} TYPE '{names.key}'",
            near={"query": "FUZZY {names.key}", "for_each": "names"},
            found={"query": "SEARCH x{names.key} WHERE name = '{names.key}' LIMIT 3", "for_each": "names"},
            secret="SEARCH secret WHERE name IN ('{names.key}')",
        ),
        user=ALICE,
    )
    assert [stage.status for stage in result.stages] == ["done"] * 6, [stage.error for stage in result.stages]
    assert sorted(row["record"]["name"] for row in result["again"].result.results) == sorted(hostile)
    assert result["walk"].result.results == []
    seen = {row["record"]["name"] for stage in result.stages[1:] for row in stage.result.results}
    assert seen <= set(hostile)


async def test_plan_runs_in_the_scope_of_its_caller(rem: Rem) -> None:
    alice = rem.store(ALICE)
    await alice.upsert(User(name="Ada"))
    stages = plan(a="LOOKUP ada", b="LOOKUP {a.key}", c="SELECT name FROM users", d="FUZZY ada", e="SEARCH ada")
    assert (await rem.run_plan(stages, user=ALICE))["b"].result.count == 1
    for user, tenant in (("bob@example.com", "default"), (None, "default"), (ALICE, "other")):
        result = await rem.run_plan(stages, user=user, tenant=tenant)
        assert [stage.result.count for stage in result.stages] == [0] * 5
        assert result["b"].status == "skipped"
    for field in ("user", "tenant", "scope"):
        with pytest.raises(InvalidInputError, match=f"valid. {field}: there is no such field"):
            await rem.run_plan({**stages, field: ALICE})


async def test_for_each_runs_the_stage_for_each_row(rem: Rem, alice: Store) -> None:
    for name, topic in (("Ada", "engines"), ("Bo", None), ("Cy", "orchards")):
        await alice.upsert(User(name=name, metadata={"topic": topic}))
    await alice.upsert(Resource(name="Trees", content="orchards and gardens"))
    await alice.upsert(Resource(name="Steam", content="engines and gardens"))
    result = await rem.run_plan(
        plan(
            people="LOOKUP ada, bo, cy",
            each={"query": "SEARCH {people.record.metadata.topic} FROM resources", "for_each": "people"},
            first={"query": "LOOKUP {people.key}", "for_each": "people[:2]"},
        ),
        user=ALICE,
    )
    each = result["each"]
    assert each.queries == ('SEARCH "engines" FROM resources', 'SEARCH "orchards" FROM resources')
    assert each.query == "SEARCH {people.record.metadata.topic} FROM resources"
    assert [(row["for_each"], row["key"]) for row in each.result.results] == [("ada", "steam"), ("cy", "trees")]
    assert any(note.startswith("Left out 1 of 3 rows: The rows of people") for note in each.result.notes)
    assert keys(result, "first") == ["ada", "bo"]


async def test_for_each_limits_rows_and_adds_a_note() -> None:
    executor = ScriptedExecutor([{"key": str(n)} for n in range(MAX_RUNS_PER_STAGE + 10)])
    result = await run_scripted(plan(a="LOOKUP a", b={"query": "FUZZY {a.key}", "for_each": "a"}), executor)
    assert len(executor.ran) == 1 + MAX_RUNS_PER_STAGE
    assert result["b"].result.notes == (
        f"Only the first {MAX_RUNS_PER_STAGE} of {MAX_RUNS_PER_STAGE + 10} rows were run for.",
    )


async def test_stage_without_input_is_skipped_with_a_note(alice: Store, rem: Rem) -> None:
    await alice.upsert(User(name="Ada"))
    result = await rem.run_plan(
        plan(
            nobody="LOOKUP nobody",
            reached="TRAVERSE FROM {nobody.key}",
            further="LOOKUP {reached.key}",
            each={"query": "LOOKUP {nobody.key}", "for_each": "nobody"},
            ada="LOOKUP ada",
            nowhere="LOOKUP {ada.record.metadata.nowhere}",
            after={"query": "LOOKUP ada", "depends_on": ["reached"]},
            either="LOOKUP {nobody.key}, {ada.key}",
        ),
        user=ALICE,
    )
    status = {stage.id: stage.status for stage in result.stages}
    assert status == {
        "nobody": "done",
        "reached": "skipped",
        "further": "skipped",
        "each": "skipped",
        "ada": "done",
        "nowhere": "skipped",
        "after": "done",
        "either": "done",
    }
    assert result["reached"].result == QueryResult("TRAVERSE", [], ("Skipped: nobody gave no rows for {nobody.key}.",))
    assert result["each"].result.notes == ("Skipped: nobody gave no rows to run for.",)
    assert keys(result, "either") == ["ada"]
    assert "nobody gave no rows for {nobody.key}." in result["either"].result.notes


async def test_failed_stage_skips_only_dependent_stages(rem: Rem, alice: Store) -> None:
    await alice.upsert(User(name="Ada"))
    result = await rem.run_plan(
        plan(
            broken="SEARCH x FROM nowhere",
            fed="LOOKUP {broken.key}",
            later={"query": "LOOKUP ada", "depends_on": ["fed"]},
            sql="SELECT * FROM pg_authid",
            fine="LOOKUP ada",
            each={"query": "SEARCH {fine.key} WHERE nothing = 1", "for_each": "fine"},
        ),
        user=ALICE,
    )
    assert [stage.status for stage in result.stages] == ["failed", "skipped", "skipped", "failed", "done", "failed"]
    assert "There is no table 'nowhere'" in (result["broken"].error or "")
    assert result["fed"].result.notes == ("Skipped, because broken failed or was skipped for a failure.",)
    assert "the field 'nothing'" in (result["each"].error or "")
    assert result["each"].queries == ('SEARCH "ada" WHERE nothing = 1',)
    assert keys(result, "fine") == ["ada"]


async def test_failed_for_each_run_cancels_the_other_runs() -> None:
    class Stuck(ScriptedExecutor):
        async def run(self, query: str | Query, text: str | None = None) -> QueryResult:
            if query == Fuzzy("stuck"):
                await asyncio.Event().wait()
            return await super().run(query, text)

    executor = Stuck([{"key": "stuck"}, {"key": "broken"}], broken="broken")
    stages = plan(a="LOOKUP a", b={"query": "FUZZY {a.key}", "for_each": "a"})
    result = await asyncio.wait_for(run_scripted(stages, executor), 10)
    assert result["b"].error == "The database does not answer."


async def test_unexpected_exception_is_not_reported_as_failed_stage() -> None:
    class Buggy(ScriptedExecutor):
        async def run(self, query: str | Query, text: str | None = None) -> QueryResult:
            raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as caught:
        await run_scripted(plan(a="LOOKUP a", b="LOOKUP b"), Buggy())
    assert caught.group_contains(ZeroDivisionError)


async def test_independent_stages_run_concurrently_up_to_a_limit() -> None:
    executor = ScriptedExecutor()
    stages = {f"s{n}": f"LOOKUP s{n}" for n in range(10)}
    result = await run_scripted(plan(**stages, last="LOOKUP {s0.key}, {s9.key}"), executor)
    assert executor.max_running == MAX_CONCURRENT_QUERIES
    assert [stage.id for stage in result.stages] == [*stages, "last"]
    chain = ScriptedExecutor()
    await run_scripted(plan(a="LOOKUP x", b="LOOKUP {a.key}", c="LOOKUP {b.key}"), chain)
    assert chain.max_running == 1


async def test_stages_share_the_connection_pool(rem: Rem, alice: Store) -> None:
    await alice.upsert_many([User(name=f"u{n}", summary=f"word{n}") for n in range(15)])
    stages = {
        f"s{n}": ("LOOKUP u{}", "FUZZY u{}", "SEARCH word{}", "SELECT {} AS key")[n % 4].format(n) for n in range(15)
    }
    results = await asyncio.gather(*(rem.run_plan(plan(**stages), user=ALICE) for _ in range(5)))
    for result in results:
        assert [stage.status for stage in result.stages] == ["done"] * 15, [stage.error for stage in result.stages]
        assert result["s12"].result.results[0]["key"] == "u12"


async def test_cancelled_plan_cancels_its_queries() -> None:
    class Stuck(ScriptedExecutor):
        started = asyncio.Event()
        stopped = 0

        async def run(self, query: str | Query, text: str | None = None) -> QueryResult:
            if isinstance(query, Lookup):
                return await super().run(query, text)
            self.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped += 1
            raise AssertionError

    executor = Stuck([{"key": str(n)} for n in range(20)])
    stages = plan(a="LOOKUP a", b={"query": "FUZZY {a.key}", "for_each": "a"})
    running = asyncio.create_task(run_scripted(stages, executor))
    await executor.started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert executor.stopped >= 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_stages_can_be_in_any_order_and_answer_selects_one() -> None:
    result = await run_scripted(plan("late", late="LOOKUP {early.key}", early="LOOKUP a"))
    assert [stage.id for stage in result.stages] == ["late", "early"]
    assert result.answer == "late"
    assert (await run_scripted(plan(late="LOOKUP {early.key}", early="LOOKUP a"))).answer == "early"


async def test_plan_result_as_json() -> None:
    stages = plan("b", a="LOOKUP a", b={"query": "FUZZY {a.key}", "for_each": "a"}, c="LOOKUP {a.no}", d="SQL broken")
    result = await run_scripted(stages, ScriptedExecutor(broken="broken"))
    printed = result.as_json()
    assert json.loads(json.dumps(printed)) == printed
    note = "Skipped: The rows of a (key) have no value for {a.no}."
    nothing: dict[str, Any] = {"results": [], "count": 0}
    assert printed == {
        "query_type": "PLAN",
        "stages": [
            {
                "id": "a",
                "status": "done",
                "query": 'LOOKUP "a"',
                "query_type": "LOOKUP",
                "results": [{"key": "x"}],
                "count": 1,
            },
            {
                "id": "b",
                "status": "done",
                "query": "FUZZY {a.key}",
                "queries": ['FUZZY "x"'],
                "query_type": "FUZZY",
                "results": [{"for_each": "x", "key": "x"}],
                "count": 1,
            },
            {
                "id": "c",
                "status": "skipped",
                "query": "LOOKUP {a.no}",
                "query_type": "LOOKUP",
                **nothing,
                "notes": [note],
            },
            {
                "id": "d",
                "status": "failed",
                "query": "SELECT * FROM broken",
                "error": "The database does not answer.",
                "query_type": "SQL",
                **nothing,
            },
        ],
        "answer": "b",
        "results": [{"for_each": "x", "key": "x"}],
        "count": 1,
    }
    assert printed["stages"][0].keys() < result.as_json(explain=True)["stages"][0].keys()


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ("", "The plan is not JSON"),
        ("[1]", r"The plan is not valid\. It must be an object\. A plan is \{"),
        ("{}", r"valid\. stages: it is missing\. A plan is \{"),
        ({"stages": []}, r"valid\. stages: there must be at least one\. A plan is \{"),
        ({"stages": "x"}, r"valid\. stages: it must be a list\. A plan is \{"),
        ({"stages": [1]}, r"valid\. stages\.0: it must be an object\. A plan is \{"),
        ({"stages": [{"id": "a"}]}, r"valid\. stages\.0\.query: it is missing\. A plan is \{"),
        ({"stages": [{"id": "a", "query": 1}]}, r"valid\. stages\.0\.query: it must be a text\. A plan is \{"),
        ({"stages": [{"id": "a b", "query": "LOOKUP x"}]}, r"stages\.0\.id: it must be a letter, then letters"),
        ({"stages": [{"id": "a\n", "query": "LOOKUP x"}]}, r"stages\.0\.id: it must be a letter, then letters"),
        ({"stages": [{"id": "a", "query": "LOOKUP x", "user": "bob"}]}, r"stages\.0\.user: there is no such field"),
        (plan(a=""), "Stage a: Empty query"),
        (plan(a="LOKUP x"), "Stage a: Unknown verb 'LOKUP'"),
        (plan(a="LOOKUP x\0"), r"Stage a: The character U\+0000"),
        (plan(a="LOOKUP {b.key}"), r"Stage a: \{b\.key\} refers to no stage\. The stages are a;"),
        (plan(a="LOOKUP {a.key}"), "Stage a: a stage cannot depend on itself"),
        (plan(a={"query": "LOOKUP x", "depends_on": ["a"]}), "Stage a: a stage cannot depend on itself"),
        (plan(a={"query": "LOOKUP x", "depends_on": ["b"]}), "Stage a: there is no stage b"),
        (plan(a={"query": "LOOKUP x", "for_each": "b"}), "Stage a: there is no stage b"),
        (plan(b="LOOKUP x", a={"query": "LOOKUP x", "for_each": "b"}), "Stage a: it runs for each row of b but"),
        (plan(b="LOOKUP x", a={"query": "LOOKUP {b}", "for_each": "b.key"}), "Stage a: 'b.key' names no rows"),
        (plan(b="LOOKUP x", a="SELECT '{b.key}'"), r"Stage a: \{b\.key\} stands in SQL"),
        (plan("c", a="LOOKUP x"), "The answer is to be c, but the stages are a"),
        ({"stages": [{"id": "a", "query": "LOOKUP x"}] * 2}, "Two stages have the id a"),
        (plan(**{f"s{n}": "LOOKUP x" for n in range(MAX_STAGES + 1)}), "there may be at most 20"),
        (
            plan(a="LOOKUP {b}", b="LOOKUP {c}", c="LOOKUP {a}"),
            "wait for each other: (a → b → c → a|b → c → a → b|c → a → b → c)",
        ),
        (plan(a="LOOKUP {b}", b={"query": "LOOKUP x", "depends_on": ["a"]}), "wait for each other"),
    ],
)
async def test_invalid_plan_is_rejected_before_any_stage_runs(stages: Any, message: str) -> None:
    executor = ScriptedExecutor()
    with pytest.raises(InvalidInputError, match=message):
        await run_plan(executor, Plan.parse(stages))
    assert executor.ran == []


async def test_plan_can_be_an_object_a_mapping_or_json() -> None:
    as_object = Plan(stages=(Stage(id="a", query="LOOKUP x"),))
    assert Plan.parse(as_object) == Plan.parse(plan(a="LOOKUP x")) == Plan.parse(json.dumps(plan(a="LOOKUP x")))


async def test_unicode_and_long_values_are_unchanged(rem: Rem, alice: Store) -> None:
    name = "Zoë 日本 🙂 \u202e"
    await alice.upsert(Resource(name=name, metadata={"text": "orchard " * 2_000}, content="The orchard."))
    result = await rem.run_plan(
        plan(
            a=f'LOOKUP "{name}"',
            b="LOOKUP {a.record.name}",
            c="SEARCH {a.record.metadata.text}",
            d="LOOKUP {a.record.metadata.text}",
        ),
        user=ALICE,
    )
    assert [stage.result.count for stage in result.stages] == [1, 1, 1, 0]


async def test_search_and_sql_stages_run_as_trees() -> None:
    executor = ScriptedExecutor()
    await run_scripted(plan(a="SEARCH x LIMIT 2", b="SELECT 1"), executor)
    assert executor.ran == [Search("x", limit=2), Sql("SELECT 1")]
