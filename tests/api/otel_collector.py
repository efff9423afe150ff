"""An OpenTelemetry collector on loopback that keeps the spans it receives."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Receives OTLP over HTTP. `spans` are those that have arrived."""

    def __enter__(self) -> Collector:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.content = b""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector._take(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_arguments: object) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Return the address of the collector."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def _take(self, body: bytes) -> None:
        self.content += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
            self.services.add(named["service.name"])
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
