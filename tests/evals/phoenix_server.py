"""A small server with the part of Phoenix's REST API that REM uses, over real HTTP on loopback.

`make test-phoenix` runs the same tests against a real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.http_server import serve_in_thread


class PhoenixServer:
    """Stores what REM sends, and answers as Phoenix does."""

    def __init__(self) -> None:
        self.datasets: list[dict[str, Any]] = []
        self.experiments: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self.api_keys: set[str] = set()
        self.url = ""

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/datasets/upload", self._upload, methods=["POST"]),
                Route("/v1/datasets", self._list_datasets),
                Route("/v1/datasets/{id}/examples", self._list_examples),
                Route("/v1/datasets/{id}/experiments", self._create_experiment, methods=["POST"]),
                Route("/v1/experiments/{id}/runs", self._create_run, methods=["POST"]),
                Route("/v1/experiments/{id}/json", self._get_experiment),
                Route("/v1/experiment_evaluations", self._evaluate, methods=["POST"]),
                Route("/v1/span_annotations", self._annotate, methods=["POST"]),
                Route("/v1/projects/{project}/span_annotations", self._list_annotations),
            ]
        )

    async def _upload(self, request: Request) -> JSONResponse:
        self.api_keys.add(request.headers.get("authorization", ""))
        body = await request.json()
        if any(dataset["name"] == body["name"] for dataset in self.datasets):
            return JSONResponse({"detail": "exists"}, 409)
        rows = zip(body["inputs"], body["outputs"], body["metadata"], strict=True)
        examples = [
            {"id": f"example-{n}", "input": case, "output": reference, "metadata": metadata}
            for n, (case, reference, metadata) in enumerate(rows)
        ]
        self.datasets.append({"id": f"d{len(self.datasets)}=", "name": body["name"], "examples": examples})
        return JSONResponse({"data": {"dataset_id": self.datasets[-1]["id"]}})

    async def _list_datasets(self, request: Request) -> JSONResponse:
        name = request.query_params["name"]
        return JSONResponse({"data": [{"id": d["id"]} for d in self.datasets if d["name"] == name]})

    async def _list_examples(self, request: Request) -> JSONResponse:
        (dataset,) = [d for d in self.datasets if d["id"] == request.path_params["id"]]
        return JSONResponse({"data": {"version_id": "v1", "examples": dataset["examples"]}})

    async def _create_experiment(self, request: Request) -> JSONResponse:
        self.experiments.append({**await request.json(), "runs": []})
        return JSONResponse({"data": {"id": str(len(self.experiments) - 1)}})

    async def _create_run(self, request: Request) -> JSONResponse:
        runs = self.experiments[int(request.path_params["id"])]["runs"]
        runs.append({**await request.json(), "annotations": []})
        return JSONResponse({"data": {"id": f"{request.path_params['id']}-{len(runs) - 1}"}})

    async def _get_experiment(self, request: Request) -> JSONResponse:
        return JSONResponse(self.experiments[int(request.path_params["id"])]["runs"])

    async def _evaluate(self, request: Request) -> JSONResponse:
        body = await request.json()
        if ("result" in body) == ("error" in body):
            return JSONResponse({"detail": "either result or error"}, 422)
        experiment, run = body["experiment_run_id"].split("-")
        self.experiments[int(experiment)]["runs"][int(run)]["annotations"].append(body)
        return JSONResponse({"data": {"id": "e"}})

    async def _annotate(self, request: Request) -> JSONResponse:
        for annotation in (await request.json())["data"]:
            self.annotations = [a for a in self.annotations if a.get("identifier") != annotation["identifier"]]
            self.annotations.append({**annotation, "id": f"a{len(self.annotations)}"})
        return JSONResponse({"data": []})

    async def _list_annotations(self, request: Request) -> JSONResponse:
        spans = request.query_params.getlist("span_ids")
        return JSONResponse({"data": [a for a in self.annotations if a["span_id"] in spans]})


@contextmanager
def phoenix_server() -> Iterator[PhoenixServer]:
    """Run the server; its address is in `url`."""
    phoenix = PhoenixServer()
    with serve_in_thread(phoenix.app()) as address:
        phoenix.url = address
        yield phoenix
