"""AnswersRun: store a data set, let a model answer from what SEARCH finds, and let another model judge the answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.metadata import version
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest, ModelResponse
from pydantic_ai.settings import ModelSettings

from bench.quality.answers.history import format_date, write_history
from bench.quality.answers.prompts import UNANSWERABLE_KIND, Prompts
from bench.quality.answers.results import AnsweredQuestion, AnswersFile, AnswersHeader, ModelCalls
from bench.quality.answers.scoring import list_f1, parse_verdict, says_unknown, split_words, token_f1
from bench.quality.dataset import Case, Dataset, Question
from bench.quality.retrieval_benchmark import SQL, OnProgress, RetrievalBenchmark
from rem.agents.model_errors import describe_model_error
from rem.agents.model_registry import ModelRegistry, ResolvedModel
from rem.errors import InvalidInputError, ModelRateLimitError, ModelRequiredError, ModelTimeoutError, RemError
from rem.models.field_types import utc_now

if TYPE_CHECKING:
    from bench.quality.measurements import Progress
    from rem.app import Rem
    from rem.settings import Settings

MAX_RESPONSE_TOKENS, MAX_VERDICT_TOKENS = 1_000, 200
MAX_ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 1.0
MAX_FAILURES_IN_A_ROW = 8
"""Then the model is not usable, and the run stops. What was answered is kept."""
_LIST_KIND = "multi-hop"
"""The kind of LoCoMo whose answers are lists."""


@dataclass(frozen=True, slots=True)
class AnswersOptions:
    """How questions are answered."""

    reader: str | None
    judge: str | None
    top_k: int
    context_tokens: int
    concurrency: int
    seed: int


@dataclass(frozen=True, slots=True)
class _Task:
    case: Case
    question: Question


def choose_questions(dataset: Dataset, limit: int | None, seed: int) -> Dataset:
    """Return the data set with the questions that have a correct answer; with `limit`, a random choice of them.

    The same seed gives the same choice. Memories without a question are left out.
    """
    questions = [(case.user, item) for case in dataset.cases for item in case.questions if item.answer is not None]
    if not questions:
        raise InvalidInputError("This data set has no questions with answers in words: is it the official file?")
    if limit is not None and limit < len(questions):
        questions = random.Random(seed).sample(questions, limit)  # a choice, not a secret
    chosen = {(user, question.id) for user, question in questions}
    cases = [
        replace(case, questions=tuple(item for item in case.questions if (case.user, item.id) in chosen))
        for case in dataset.cases
    ]
    return replace(dataset, cases=tuple(case for case in cases if case.questions))


class ModelCaller:
    """Calls the reader and the judge."""

    def __init__(self, settings: Settings, options: AnswersOptions) -> None:
        self._registry = ModelRegistry(settings)
        self._seed = options.seed
        self.reader = self._resolve(options.reader, "--reader")
        self.judge = self._resolve(options.judge or options.reader, "--judge")

    def _resolve(self, name: str | None, option: str) -> ResolvedModel:
        model = self._registry.resolve(name)
        if model.is_local:
            raise ModelRequiredError(
                f"This needs a language model: add {option} openai:gpt-4o, or set LLM__DEFAULT_MODEL."
            )
        return model

    async def call(self, model: ResolvedModel, prompt: str, max_tokens: int) -> tuple[str, ModelCalls]:
        """Return the answer of a model to a prompt, and what it used. Raise RemError if it fails for good."""
        settings = ModelSettings(temperature=0.0, seed=self._seed, max_tokens=max_tokens)
        started = perf_counter()
        for attempt in range(MAX_ATTEMPTS):
            try:
                response = await model_request(
                    model.model, [ModelRequest.user_text_prompt(prompt)], model_settings=settings
                )
                return response.text or "", _to_calls(response, perf_counter() - started)
            except Exception as error:  # any error of a provider becomes one of REM
                described = describe_model_error(error)
                can_retry = isinstance(described, ModelRateLimitError | ModelTimeoutError)
                if not can_retry or attempt == MAX_ATTEMPTS - 1:
                    raise described from error
                await asyncio.sleep(FIRST_PAUSE_SECONDS * 2**attempt)
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Close the connections."""
        await self._registry.close()


def _to_calls(response: ModelResponse, seconds: float) -> ModelCalls:
    try:
        cost: float | None = float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        cost = None
    usage = response.usage
    return ModelCalls(
        input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cost=cost, seconds=round(seconds, 3)
    )


def make_header(
    dataset: Dataset, models: ModelCaller, prompts: Prompts, options: AnswersOptions, embedder: str
) -> AnswersHeader:
    """Return what a run is made with."""
    questions = [(case.user, item.id, item.text, item.answer) for case in dataset.cases for item in case.questions]
    return AnswersHeader(
        dataset=dataset.name,
        data=sha256(repr(sorted(questions)).encode()).hexdigest()[:16],
        reader=models.reader.name,
        judge=models.judge.name,
        prompts=prompts.fingerprint,
        top_k=options.top_k,
        context_tokens=options.context_tokens,
        seed=options.seed,
        rem=version("remstack"),
        embedder=embedder,
        began_at=utc_now(),
    )


class AnswersRun:
    """Answers the questions that are not in the file yet, several at a time."""

    def __init__(
        self,
        rem: Rem,
        dataset: Dataset,
        models: ModelCaller,
        prompts: Prompts,
        options: AnswersOptions,
        file: AnswersFile,
        *,
        tenant: str,
    ) -> None:
        self._rem = rem
        self._dataset = dataset
        self._models = models
        self._prompts = prompts
        self._options = options
        self._file = file
        self._retrieval = RetrievalBenchmark(rem, dataset, tenant=tenant, limit=options.top_k)
        self._failures_in_a_row = 0
        self.failures: list[RemError] = []

    async def run(self, progress: Progress) -> list[AnsweredQuestion]:
        """Store and index the memories, then answer. Return the new answers."""
        with progress("Storing") as on_rows:
            await self._retrieval.store(on_rows)
        with progress("Indexing") as on_rows:
            await self._retrieval.index(on_rows)
        with progress("Answering") as on_questions:
            return await self._answer_all(on_questions)

    async def _answer_all(self, on_progress: OnProgress) -> list[AnsweredQuestion]:
        tasks = [_Task(case, question) for case in self._dataset.cases for question in case.questions]
        waiting = iter(tasks)
        answers: list[AnsweredQuestion] = []

        async def work() -> None:
            for task in waiting:
                try:
                    answer = await self._answer(task)
                except RemError as error:
                    self._note_failure(error)
                    continue
                self._failures_in_a_row = 0
                self._file.add(answer)
                answers.append(answer)
                on_progress(len(answers), len(tasks))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._options.concurrency):
                    group.create_task(work())
        except ExceptionGroup as group_error:
            raise group_error.exceptions[0] from group_error
        return answers

    def _note_failure(self, error: RemError) -> None:
        self.failures.append(error)
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            raise error

    async def _answer(self, task: _Task) -> AnsweredQuestion:
        question = task.question
        found = await self._retrieval.find(task.case.user, question)
        history, tokens = write_history(task.case, found, self._options.context_tokens)
        prompt = self._prompts.make_reader_prompt(
            history=history or "(Nothing was found.)", question=question.text, date=format_date(question.asked_at)
        )
        response, reading = await self._models.call(self._models.reader, prompt, MAX_RESPONSE_TOKENS)
        judgement, judging = await self._judge(question, response)
        return AnsweredQuestion(
            id=f"{task.case.user}/{question.id}",
            kind=question.kind,
            is_answerable=question.is_answerable,
            question=question.text,
            answer=str(question.answer),
            found=list(found),
            history_tokens=tokens,
            response=response,
            verdict=parse_verdict(judgement),
            judgement=judgement,
            f1=await self._compute_f1(question, response),
            reader=reading,
            judge=judging,
        )

    async def _judge(self, question: Question, response: str) -> tuple[str, ModelCalls]:
        kind = question.kind if question.is_answerable else UNANSWERABLE_KIND
        prompt = self._prompts.make_judge_prompt(
            kind, question=question.text, answer=str(question.answer), response=response or "(no response)"
        )
        return await self._models.call(self._models.judge, prompt, MAX_VERDICT_TOKENS)

    async def _compute_f1(self, question: Question, response: str) -> float | None:
        """Return the F1 of LoCoMo, on the stems of words; None for other data sets."""
        if self._dataset.name != "locomo":
            return None
        if not question.is_answerable:
            return float(says_unknown(response))
        if question.kind == _LIST_KIND:
            parts = [await self._stem(part) for part in response.split(",")]
            return round(list_f1(parts, [await self._stem(part) for part in str(question.answer).split(",")]), 4)
        # What comes after a semicolon is a second possible answer.
        answer = str(question.answer).split(";")[0] if question.kind == "open" else str(question.answer)
        return round(token_f1(await self._stem(response), await self._stem(answer)), 4)

    async def _stem(self, text: str) -> list[str]:
        async with self._rem.database.connection() as connection:
            stems: Any = await connection.fetchval(SQL["stems"], split_words(text))
        return list(stems or ())


def list_waiting(dataset: Dataset, answers: Sequence[AnsweredQuestion]) -> Dataset:
    """Return the data set without the questions that are answered, and without memories that nobody asks."""
    done = {answer.id for answer in answers}
    cases = [
        replace(case, questions=tuple(item for item in case.questions if f"{case.user}/{item.id}" not in done))
        for case in dataset.cases
    ]
    return replace(dataset, cases=tuple(case for case in cases if case.questions))
