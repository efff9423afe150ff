"""Arize Phoenix: send golden sets, experiments and feedback to a Phoenix server, and get them from there.

REM uses Phoenix's REST API directly, so it needs no package of Phoenix. Every experiment also works without Phoenix.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import httpx2

from rem.agents.evaluation import PASS
from rem.errors import NotFoundError, PhoenixError, SettingsError
from rem.evals.evaluators import CaseOutput, Evaluator, Judge, Judgement
from rem.evals.experiment_store import ExperimentRun, StoredCase, StoredJudgement
from rem.evals.experiments import Experiments, RunOptions, load_run_evaluators
from rem.evals.golden_sets import GoldenCase, GoldenSet
from rem.models import Feedback

if TYPE_CHECKING:
    from rem.agents.schema import AgentSchema
    from rem.app import Rem
    from rem.context import Scope
    from rem.evals.targets import Target
    from rem.settings import PhoenixSettings

PhoenixEvaluator: TypeAlias = Callable[..., Awaitable[dict[str, Any]]]

FEEDBACK = "feedback"
"""The name of REM's feedback among the annotations of a span."""
CASE_ID = "case_id"
MAX_FEEDBACK_ROWS = 10_000
PAGE_ROWS = 100


@dataclass(frozen=True, slots=True)
class PhoenixDataset:
    """A data set of Phoenix, with the example of each case."""

    id: str
    version_id: str
    example_ids: dict[str, str]
    """By the id of the case."""


class PhoenixClient:
    """Calls the REST API of a Phoenix server. Use `open_phoenix` to get one."""

    def __init__(self, http: httpx2.AsyncClient, project: str) -> None:
        self._http = http
        self._project = quote(project, safe="")

    async def upload_golden_set(self, golden_set: GoldenSet) -> PhoenixDataset:
        """Store a golden set as a data set, once: its name contains the hash of the cases."""
        name = f"{golden_set.name}-{golden_set.data_hash}"
        body = {
            "action": "create",
            "name": name,
            "inputs": [{"input": case.input} for case in golden_set.cases],
            "outputs": [{"reference": case.reference} for case in golden_set.cases],
            "metadata": [{**case.metadata, CASE_ID: case.id} for case in golden_set.cases],
        }
        response = await self._request("POST", "/v1/datasets/upload", ok=(409,), params={"sync": "true"}, json=body)
        dataset_id = (await self._find_dataset(name)) if response is None else str(response["data"]["dataset_id"])
        return await self._load_examples(dataset_id)

    async def download_golden_set(self, name: str) -> GoldenSet:
        """Return a data set as a golden set. Raise NotFoundError if there is none with this name."""
        data = await self._get_examples(await self._find_dataset(name))
        return GoldenSet(name, tuple(_to_case(example, number) for number, example in enumerate(data["examples"], 1)))

    async def upload_run(self, run: ExperimentRun, cases: Sequence[StoredCase]) -> str:
        """Store a run with its outputs and scores as an experiment, and return the id of the experiment."""
        golden_set = GoldenSet(run.golden_set, tuple(case.case for case in cases))
        dataset = await self.upload_golden_set(golden_set)
        body = {
            "name": run.label,
            "version_id": dataset.version_id,
            "metadata": {"target": run.target, "versions": run.versions, "seed": run.seed, "rem_run": str(run.id)},
        }
        response = await self._post(f"/v1/datasets/{quote(dataset.id, safe='')}/experiments", body)
        experiment_id = str(response["data"]["id"])
        judges = {evaluator.name for evaluator in load_run_evaluators(run) if evaluator.needs_model}
        for case in cases:
            if case.ended_at is not None:
                await self._upload_case(experiment_id, dataset.example_ids[case.case.id], case, judges)
        return experiment_id

    async def download_run(self, experiment_id: str) -> list[dict[str, Any]]:
        """Return the outputs of an experiment with their annotations, as Phoenix stores them."""
        response = await self._request("GET", f"/v1/experiments/{quote(experiment_id, safe='')}/json")
        return list(response or [])

    async def upload_feedback(self, feedbacks: Sequence[Feedback]) -> int:
        """Store ratings of answers as annotations of their spans, and return how many have a span.

        The same rating again replaces the annotation.
        """
        annotations = [_to_annotation(feedback) for feedback in feedbacks if feedback.span_id]
        if annotations:
            await self._post("/v1/span_annotations", {"data": annotations}, params={"sync": "true"})
        return len(annotations)

    async def download_feedback(self, span_ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return what people wrote about these spans in Phoenix, without REM's own feedback."""
        found: list[dict[str, Any]] = []
        path = f"/v1/projects/{self._project}/span_annotations"
        for start in range(0, len(span_ids), PAGE_ROWS):
            page = {"span_ids": list(span_ids[start : start + PAGE_ROWS]), "limit": 10 * PAGE_ROWS}
            response = await self._request("GET", path, ok=(404,), params=page) or {"data": []}
            found += response["data"]
        return [item for item in found if item.get("annotator_kind") == "HUMAN" and item.get("name") != FEEDBACK]

    async def list_spans(self, limit: int = PAGE_ROWS) -> list[dict[str, Any]]:
        """Return the latest spans of the project."""
        path = f"/v1/projects/{self._project}/spans"
        response = await self._request("GET", path, ok=(404,), params={"limit": limit})
        return [] if response is None else list(response["data"])

    async def _upload_case(self, experiment_id: str, example_id: str, case: StoredCase, judges: set[str]) -> None:
        assert case.ended_at is not None  # noqa: S101  # checked by the caller
        body = {
            "dataset_example_id": example_id,
            "output": case.output.value,
            "repetition_number": 1,
            **_make_times(case.ended_at, case.output.seconds),
            **({} if case.error is None else {"error": case.error}),
        }
        response = await self._post(f"/v1/experiments/{quote(experiment_id, safe='')}/runs", body)
        for evaluator, judgement in case.judgements.items():
            kind = "LLM" if evaluator in judges else "CODE"
            for evaluation in _to_evaluations(evaluator, judgement):
                times = _make_times(case.ended_at, judgement.seconds)
                fields = {"experiment_run_id": response["data"]["id"], "annotator_kind": kind}
                await self._post("/v1/experiment_evaluations", {**evaluation, **times, **fields})

    async def _find_dataset(self, name: str) -> str:
        response = await self._request("GET", "/v1/datasets", params={"name": name, "limit": 1})
        datasets = (response or {}).get("data") or []
        if not datasets:
            raise NotFoundError(f"Phoenix has no data set {name!r}.")
        return str(datasets[0]["id"])

    async def _load_examples(self, dataset_id: str) -> PhoenixDataset:
        data = await self._get_examples(dataset_id)
        examples = {str(item["metadata"].get(CASE_ID)): str(item["id"]) for item in data["examples"]}
        return PhoenixDataset(dataset_id, data["version_id"], examples)

    async def _get_examples(self, dataset_id: str) -> dict[str, Any]:
        response = await self._request("GET", f"/v1/datasets/{quote(dataset_id, safe='')}/examples")
        data: dict[str, Any] = (response or {})["data"]
        return data

    async def _post(self, path: str, body: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        response: dict[str, Any] = await self._request("POST", path, json=body, **options)
        return response

    async def _request(self, method: str, path: str, *, ok: tuple[int, ...] = (), **options: Any) -> Any:
        """Return the JSON of an answer; None if its status is one of `ok`. Raise PhoenixError for any other failure."""
        try:
            response = await self._http.request(method, path, **options)
            if response.status_code in ok:
                return None
            response.raise_for_status()
            return response.json()
        except httpx2.HTTPStatusError as error:
            raise PhoenixError(
                f"Phoenix answered {method} {path} with {error.response.status_code}: {error.response.text[:200]}"
            ) from error
        except (httpx2.HTTPError, ValueError) as error:
            raise PhoenixError(
                f"Phoenix at {self._http.base_url} gave no valid answer: {error}. Check PHOENIX__ENDPOINT."
            ) from error


@asynccontextmanager
async def open_phoenix(settings: PhoenixSettings) -> AsyncIterator[PhoenixClient]:
    """Open a client for the configured server. Raise SettingsError if none is configured."""
    if settings.endpoint is None:
        raise SettingsError("Phoenix is not configured: set PHOENIX__ENDPOINT, such as http://localhost:6006.")
    key = settings.api_key.get_secret_value() if settings.api_key else None
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(
        base_url=settings.endpoint.rstrip("/"), headers=headers, timeout=settings.timeout_seconds
    ) as http:
        yield PhoenixClient(http, settings.project)


def create_evaluator_from_schema(schema: AgentSchema, judge: Judge | None = None) -> PhoenixEvaluator:
    """Return an evaluator as a function for `run_experiment` of Phoenix's own client.

    Phoenix passes the arguments by name. The result has the score, the label `pass` or `fail`, and the explanation.
    """
    evaluator = Evaluator(schema)

    async def evaluate(
        input: Any,  # noqa: A002  # Phoenix chooses the names
        output: Any,
        expected: Any = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        case = GoldenCase(
            id="phoenix",
            input=_unwrap(input, "input"),
            reference=_unwrap(expected, "reference"),
            metadata=metadata or {},
        )
        judgement = await evaluator.judge(case, CaseOutput(output), judge)
        return _to_result(judgement)

    evaluate.__name__ = schema.name
    return evaluate


async def run_evaluation_experiment(
    rem: Rem,
    scope: Scope,
    golden_set: GoldenSet,
    target: Target,
    evaluators: Sequence[Evaluator],
    *,
    judge: Judge | None = None,
    phoenix: PhoenixClient | None = None,
    name: str | None = None,
    options: RunOptions | None = None,
) -> tuple[ExperimentRun, str | None]:
    """Run an experiment from golden set to scores. With a client, store it in Phoenix and return its id there."""
    experiments = Experiments(rem, scope)
    run = await experiments.start(golden_set, target, evaluators, name=name, judge=judge)
    run = await experiments.complete(run, target, judge, options)
    if phoenix is None:
        return run, None
    return run, await phoenix.upload_run(run, await experiments.store.load_cases(run))


async def push_feedback(rem: Rem, scope: Scope, phoenix: PhoenixClient) -> int:
    """Send the user's ratings of traced answers to Phoenix, and return their number."""
    feedbacks = await rem.for_user(scope).store.find(Feedback, {"user_id": scope.user_id}, limit=MAX_FEEDBACK_ROWS)
    return await phoenix.upload_feedback(feedbacks)


async def pull_feedback(rem: Rem, scope: Scope, phoenix: PhoenixClient) -> int:
    """Store what people wrote in Phoenix about the user's rated answers, and return the number of new ratings."""
    store = rem.for_user(scope).store
    own = await store.find(Feedback, {"user_id": scope.user_id}, limit=MAX_FEEDBACK_ROWS)
    by_span = {feedback.span_id: feedback for feedback in own if feedback.span_id}
    known = {feedback.metadata.get("phoenix_id") for feedback in own}
    count = 0
    for annotation in await phoenix.download_feedback([span for span in by_span if span]):
        if annotation["id"] in known:
            continue
        await store.upsert(_to_feedback(annotation, by_span[annotation["span_id"]]))
        count += 1
    return count


def _to_case(example: Mapping[str, Any], number: int) -> GoldenCase:
    metadata = {name: value for name, value in example["metadata"].items() if name != CASE_ID}
    return GoldenCase(
        id=str(example["metadata"].get(CASE_ID) or f"case-{number}"),
        input=_unwrap(example["input"], "input"),
        reference=_unwrap(example["output"], "reference"),
        metadata=metadata,
    )


def _unwrap(value: Any, name: str) -> Any:
    """Return the value that REM wrapped into an object for Phoenix; an object with other fields as it is."""
    if isinstance(value, Mapping) and set(value) <= {name}:
        return value.get(name)
    return value


def _to_evaluations(evaluator: str, judgement: StoredJudgement) -> list[dict[str, Any]]:
    if judgement.error is not None:
        return [{"name": evaluator, "error": judgement.error}]
    return [
        {
            "name": f"{evaluator}.{name}",
            "result": {
                "score": float(value),
                "label": ("pass" if value else "fail") if isinstance(value, bool) else None,
                "explanation": judgement.explanation,
            },
        }
        for name, value in judgement.scores.items()
    ]


def _to_result(judgement: Judgement) -> dict[str, Any]:
    """Return the score of a judgement: `overall` if there is one, else the mean of the numbers, else `pass`."""
    passed = judgement.scores.get(PASS)
    numbers = [value for value in judgement.scores.values() if not isinstance(value, bool)]
    mean = sum(numbers) / len(numbers) if numbers else float(bool(passed))
    return {
        "score": float(judgement.scores.get("overall", mean)),
        "label": None if passed is None else "pass" if passed else "fail",
        "explanation": judgement.explanation,
    }


def _to_annotation(feedback: Feedback) -> dict[str, Any]:
    label = None if feedback.rating is None else "up" if feedback.rating in (1, 4, 5) else "down"
    return {
        "span_id": feedback.span_id,
        "name": FEEDBACK,
        "annotator_kind": "HUMAN",
        "identifier": str(feedback.id),
        "result": {"score": feedback.rating, "label": label, "explanation": feedback.comment},
        "metadata": {"categories": feedback.categories},
    }


def _to_feedback(annotation: Mapping[str, Any], rated: Feedback) -> Feedback:
    result = annotation.get("result") or {}
    score = result.get("score")
    rating = None if score is None else 1 if score > 0 else -1
    comment = ": ".join(str(part) for part in (result.get("label"), result.get("explanation")) if part)
    return Feedback(
        session_id=rated.session_id,
        message_id=rated.message_id,
        rating=rating,
        categories=[annotation["name"]],
        comment=comment or None,
        trace_id=rated.trace_id,
        span_id=rated.span_id,
        metadata={"phoenix_id": annotation["id"]},
    )


def _make_times(ended_at: datetime, seconds: float) -> dict[str, str]:
    start = ended_at - timedelta(seconds=seconds)
    return {"start_time": start.isoformat(), "end_time": ended_at.isoformat()}
