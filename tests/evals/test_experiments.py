"""Experiments run a target on golden cases and judge the outputs; what is broken turns them red."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest

from rem.agents.service import Agents
from rem.agents.yaml_parser import parse_agent
from rem.app import Rem
from rem.context import AgentContext, Scope
from rem.errors import ConflictError, InvalidInputError, NotFoundError
from rem.evals.evaluators import CaseOutput, Evaluator, Judge, load_evaluators
from rem.evals.experiment_report import compare, passes, summarize_run, write_results
from rem.evals.experiment_store import ExperimentRun
from rem.evals.experiments import Experiments, RunOptions
from rem.evals.golden_sets import GoldenCase, GoldenSet
from rem.evals.targets import AgentTarget, FunctionTarget, QueryTarget, Target, fill_template, make_target
from rem.models import Resource
from tests.agents.running_agents import agents_with
from tests.scripted_model import Call, Refuse, last_text, scripted_model

ALICE = Scope(user_id="alice")
CONTEXT = AgentContext(user_id="alice", is_eval=True)


def golden(*pairs: tuple[Any, Any], name: str = "capitals") -> GoldenSet:
    cases = [GoldenCase(id=f"case-{n}", input=case, reference=ref) for n, (case, ref) in enumerate(pairs, 1)]
    return GoldenSet(name, tuple(cases))


CAPITALS = golden(("France", "Paris"), ("Japan", "Tokyo"), ("Peru", "Lima"))
ANSWERS = {case.input: case.reference for case in CAPITALS.cases}
EXACT = Evaluator(
    parse_agent("description: x\njson_schema_extra: {kind: evaluator, name: same, evaluation: {method: exact}}", "")
)


@pytest.fixture
async def agents(rem_without_embedder: Rem) -> Agents:
    return rem_without_embedder.agents


async def run(
    rem: Rem, target: Target, evaluators: list[Evaluator], cases: GoldenSet = CAPITALS, **options: Any
) -> Any:
    experiments = Experiments(rem, ALICE)
    stored = await experiments.start(cases, target, evaluators, **options)
    stored = await experiments.complete(stored, target, options.get("judge"))
    return stored, await experiments.store.load_cases(stored)


async def test_query_runs_without_a_model_and_keeps_its_versions(rem_without_embedder: Rem) -> None:
    rem = rem_without_embedder
    await rem.for_user(ALICE).store.upsert(Resource(name="Boat log", content="We sailed to Paros."))
    evaluators = await load_evaluators(["retrieval", "latency"], rem.agents, CONTEXT)
    target = QueryTarget(rem, ALICE, "SEARCH {input} FROM resources")
    cases = golden(("Paros", ["boat-log"]), ('a "quoted" \\ text', []), name="boats")
    stored, results = await run(rem, target, evaluators, cases, seed=3)
    summary = summarize_run(stored, results)
    assert (summary.passed, summary.judged, summary.errors) == (2, 2, 0)
    assert stored.label == "boats#1"
    assert stored.seed == 3
    assert stored.versions["data_hash"] == cases.data_hash
    assert {"rem", "prompt_hash", "evaluators"} <= set(stored.versions)
    assert results[0].output.value[0]["key"] == "boat-log"
    again, _ = await run(rem, target, evaluators, cases)
    assert again.number == 2
    assert again.versions == stored.versions


@pytest.mark.parametrize("output", ["wrong", None])
async def test_broken_function_turns_an_experiment_red(rem_without_embedder: Rem, output: str | None) -> None:
    rem = rem_without_embedder

    def broken(country: str) -> str:
        if output is None:
            raise RuntimeError("no connection")
        return output

    good = await run(rem, FunctionTarget(ANSWERS.__getitem__, "answers"), [EXACT])
    bad = await run(rem, FunctionTarget(broken, "answers"), [EXACT])
    assert summarize_run(*good).pass_rate == 1.0
    summary = summarize_run(*bad)
    assert summary.pass_rate == 0.0
    assert summary.errors == (3 if output is None else 0)
    assert "pass rate" in [change.label for change in compare(good, bad).regressions]
    assert compare(good, bad).newly_failed == ["case-1", "case-2", "case-3"]
    assert compare(bad, good).regressions == []
    assert len(compare(bad, good).newly_passed) == 3


async def test_smaller_difference_of_numbers_is_no_regression(rem_without_embedder: Rem) -> None:
    text = "description: x\njson_schema_extra: {kind: evaluator, name: close, evaluation: {method: numeric}}"
    cases = golden(("one", 1), ("two", 2), name="numbers")
    evaluators = [Evaluator(parse_agent(text, ""))]
    far = await run(rem_without_embedder, FunctionTarget(lambda _: 10, "guess"), evaluators, cases)
    near = await run(rem_without_embedder, FunctionTarget(lambda _: 3, "guess"), evaluators, cases)
    assert compare(far, near).regressions == []
    assert [change.label for change in compare(near, far).regressions] == ["close.difference"]


async def test_broken_query_turns_an_experiment_red(rem_without_embedder: Rem, agents: Agents) -> None:
    rem = rem_without_embedder
    await rem.for_user(ALICE).store.upsert(Resource(name="Paris", content="A city."))
    evaluators = await load_evaluators(["retrieval"], agents, CONTEXT)
    cases = golden(("Paris", ["paris"]), name="cities")
    good = await run(rem, QueryTarget(rem, ALICE, "LOOKUP"), evaluators, cases)
    bad = await run(rem, QueryTarget(rem, ALICE, "LOOKUP {input} FROM users"), evaluators, cases)
    assert compare(good, bad).regressions
    failing = await run(rem, QueryTarget(rem, ALICE, "{input}"), evaluators, golden(("SELECT 1/0", []), name="sql"))
    assert summarize_run(*failing).errors == 1
    with pytest.raises(InvalidInputError):
        await run(rem, QueryTarget(rem, ALICE, "FIND {input}"), evaluators, cases)


async def test_broken_agent_and_broken_evaluator_turn_an_experiment_red(rem: Rem) -> None:
    with scripted_model() as model:
        async with agents_with(rem.settings, model) as agents:
            judge = Judge(agents, CONTEXT, None, 0)
            target = AgentTarget(agents, CONTEXT, "rem")
            evaluators = await load_evaluators(["answer-correctness"], agents, CONTEXT)
            scores = {"correctness_score": 1, "completeness_score": 1, "explanation": "Right."}

            def answer(body: dict[str, Any]) -> list[Any]:
                if "You judge" not in str(body["messages"][0]):
                    return [ANSWERS.get(last_text(body), "?")]
                return [Call(body["tools"][0]["function"]["name"], scores)]

            model.script = answer
            good = await run(rem, target, evaluators, judge=judge)
            assert summarize_run(*good).pass_rate == 1.0
            assert good[0].versions["model"] == good[0].versions["judge_model"] == "openai:scripted"
            assert good[1][0].output.value == "Paris"

            model.script = lambda body: [Refuse(500)] if "You judge" not in str(body["messages"][0]) else answer(body)
            broken_agent = await run(rem, target, evaluators, judge=judge)
            assert summarize_run(*broken_agent).errors == 3
            assert {change.label for change in compare(good, broken_agent).regressions} >= {
                "pass rate",
                "errors per case",
            }

            model.script = lambda body: [Refuse(500)] if "You judge" in str(body["messages"][0]) else answer(body)
            broken_evaluator = await run(rem, target, evaluators, judge=judge)
            summary = summarize_run(*broken_evaluator)
            assert (summary.errors, summary.evaluator_errors, summary.passed) == (0, 3, 0)
            assert compare(good, broken_evaluator).regressions

            # The outputs are kept, and only the judgements that failed are made again.
            model.script = answer
            experiments = Experiments(rem, ALICE)
            await experiments.store.clear_errors(broken_evaluator[0])
            model.requests.clear()
            repaired = await experiments.complete(broken_evaluator[0], target, judge)
            assert len(model.requests) == 3
            assert summarize_run(repaired, await experiments.store.load_cases(repaired)).pass_rate == 1.0


async def test_experiment_leaves_no_trace_in_memory(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    with scripted_model() as model:
        async with agents_with(rem.settings, model) as agents:
            model.script = lambda body: (
                ["Done."]
                if body["messages"][-1]["role"] == "tool"
                else [Call("remember", {"text": "The vault code is seven."})]
            )
            cases = golden(("Remember that the vault code is seven.", None), name="notes")
            stored, (case,) = await run(rem, AgentTarget(agents, CONTEXT, "rem"), [], cases)
    assert case.output.details["tool_calls"][0]["result"]["status"] == "skipped"
    assert case.output.value == "Done."
    for table in ("sessions", "messages", "resources", "passages", "search_queue"):
        assert await sql.fetchval(f"SELECT count(*) FROM {table}") == 0, table
    result = await rem.for_user(ALICE).query('SEARCH "vault code"')
    assert result.count == 0
    assert stored.ended_at is not None


async def test_each_case_runs_once_however_often_a_run_stops(rem_without_embedder: Rem) -> None:
    rem = rem_without_embedder
    calls: Counter[int] = Counter()
    in_flight = most = rounds = 0
    options = RunOptions(concurrency=8)

    async def count(number: int) -> int:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        calls[number] += 1
        await asyncio.sleep(0.001)
        in_flight -= 1
        if calls.total() >= 50 * (rounds + 1):
            options.stop.set()
        return number

    cases = golden(*((number, number) for number in range(200)), name="many")
    target = FunctionTarget(count, "count")
    experiments = Experiments(rem, ALICE)
    stored = await experiments.start(cases, target, [EXACT])
    while stored.ended_at is None:
        options = RunOptions(concurrency=8)
        stored = await experiments.complete(stored, target, None, options)
        rounds += 1
    assert rounds >= 3
    assert set(calls.values()) == {1}
    assert len(calls) == 200
    assert most == 8
    assert summarize_run(stored, await experiments.store.load_cases(stored)).passed == 200


async def test_two_processes_cannot_work_on_one_run(rem_without_embedder: Rem) -> None:
    experiments = Experiments(rem_without_embedder, ALICE)
    target = FunctionTarget(ANSWERS.__getitem__, "answers")
    stored = await experiments.start(CAPITALS, target, [])
    async with experiments.store.lock(stored):
        with pytest.raises(ConflictError, match="running in another process"):
            await experiments.complete(stored, target, None)


async def test_a_run_is_not_resumed_with_another_prompt(rem_without_embedder: Rem, agents: Agents) -> None:
    rem = rem_without_embedder
    document = "description: {}\njson_schema_extra: {{name: mine, tools: [{{name: search_rem}}]}}"
    await agents.catalog.save(document.format("One."), ALICE)
    experiments = Experiments(rem, ALICE)
    target = AgentTarget(agents, CONTEXT, "mine")
    stored = await experiments.start(CAPITALS, target, [])
    await agents.catalog.save(document.format("Two."), ALICE)
    with pytest.raises(ConflictError, match="prompt hash has changed"):
        await experiments.complete(stored, target, None)


async def test_nobody_else_sees_a_run(rem_without_embedder: Rem) -> None:
    rem = rem_without_embedder
    stored, _ = await run(rem, FunctionTarget(ANSWERS.__getitem__, "answers"), [EXACT])
    for other in (Scope(user_id="bob"), Scope(tenant_id="other", user_id="alice"), Scope()):
        experiments = Experiments(rem, other)
        assert await experiments.store.list_runs() == []
        for label in ("capitals", "capitals#1", str(stored.id)):
            with pytest.raises(NotFoundError):
                await experiments.store.get(label)
        assert await experiments.store.load_cases(stored) == []
        await experiments.store.delete(stored)
        assert await experiments.store.get_previous(stored) is None
    again = await Experiments(rem, ALICE).store.get("capitals#1")
    assert len(await Experiments(rem, ALICE).store.load_cases(again)) == 3


async def test_erasing_a_user_erases_the_runs(
    rem_without_embedder: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    rem = rem_without_embedder
    await run(rem, FunctionTarget(ANSWERS.__getitem__, "answers"), [EXACT])
    await rem.for_user("alice").erase_user()
    for table in ("eval_runs", "eval_cases", "eval_scores"):
        assert await sql.fetchval(f"SELECT count(*) FROM {table}") == 0


async def test_secrets_and_odd_characters_in_outputs(rem_without_embedder: Rem) -> None:
    key = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3
    outputs = {"France": f"The key is {key}", "Japan": "a\0b\ud800", "Peru": object()}
    _, (secret, odd, unstorable) = await run(rem_without_embedder, FunctionTarget(outputs.__getitem__, "f"), [])
    assert "[masked: " in secret.output.value
    assert key not in secret.output.value
    assert odd.output.value == "a\ufffdb\ufffd"
    assert "not JSON" in (unstorable.error or "")


async def test_results_are_files_too(rem_without_embedder: Rem, tmp_path: Path) -> None:
    stored, cases = await run(rem_without_embedder, FunctionTarget(ANSWERS.__getitem__, "answers"), [EXACT])
    write_results(tmp_path / "out", stored, cases)
    outputs = [orjson.loads(line) for line in (tmp_path / "out" / "outputs.jsonl").read_bytes().splitlines()]
    scores = [orjson.loads(line) for line in (tmp_path / "out" / "scores.jsonl").read_bytes().splitlines()]
    summary = orjson.loads((tmp_path / "out" / "summary.json").read_bytes())
    assert [(row["input"], row["output"]) for row in outputs] == list(ANSWERS.items())
    assert scores[0]["scores"] == {"pass": True}
    assert summary["pass_rate"] == 1.0


async def test_later_evaluators_judge_stored_outputs(rem_without_embedder: Rem, agents: Agents) -> None:
    rem = rem_without_embedder
    calls: list[str] = []

    def answer(country: str) -> str:
        calls.append(country)
        return str(ANSWERS[country]).upper()

    stored, cases = await run(rem, FunctionTarget(answer, "answers"), [EXACT])
    assert [passes(case) for case in cases] == [False, False, False]
    experiments = Experiments(rem, ALICE)
    lenient = parse_agent(
        "description: x\njson_schema_extra: {kind: evaluator, name: same, "
        "evaluation: {method: exact, ignore_case: true}}",
        "",
    )
    stored = await experiments.add_evaluators(stored, [Evaluator(lenient)], None)
    stored = await experiments.complete(stored, None, None)
    assert summarize_run(stored, await experiments.store.load_cases(stored)).passed == 3
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("template", "text", "query"),
    [
        ("LOOKUP", "a b", 'LOOKUP "a b"'),
        ("SEARCH {input} LIMIT 3", 'x" LIMIT 99 "', 'SEARCH "x\\" LIMIT 99 \\"" LIMIT 3'),
        ("SEARCH {input}", "a\\", 'SEARCH "a\\\\"'),
        ("{input}", "LOOKUP a", "LOOKUP a"),
        ("SEARCH {input}", "{input} {0.__class__}", 'SEARCH "{input} {0.__class__}"'),
    ],
)
def test_input_of_a_query_is_quoted(template: str, text: str, query: str) -> None:
    assert fill_template(template, text) == query


def test_query_needs_a_place_for_the_input() -> None:
    with pytest.raises(InvalidInputError, match="must contain"):
        fill_template("SEARCH x", "a")


async def test_function_of_a_program_is_not_resumed_by_others(rem_without_embedder: Rem, agents: Agents) -> None:
    with pytest.raises(InvalidInputError, match="function of a program"):
        make_target({"kind": "function", "function": "f"}, rem_without_embedder, agents, CONTEXT, seed=0)


def test_case_output_defaults() -> None:
    assert CaseOutput("x").details == {}
    assert ExperimentRun.__slots__[0] == "id"
