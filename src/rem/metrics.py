"""Metrics of this process for Prometheus: what is counted, by which labels. Nothing is counted until it is enabled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rem.errors import SettingsError

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram

MetricKind = Literal["counter", "gauge", "histogram"]
LATENCY_BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metric:
    """One metric. Its labels have few values, and none of them comes from a user's text."""

    def __init__(self, kind: MetricKind, name: str, description: str, labels: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.name = name
        self.description = description
        self.labels = labels
        self._collector: Counter | Gauge | Histogram | None = None

    def enable(self) -> None:
        """Count from now on."""
        import prometheus_client

        if self._collector is not None:
            return
        match self.kind:
            case "counter":
                self._collector = prometheus_client.Counter(self.name, self.description, self.labels)
            case "histogram":
                self._collector = prometheus_client.Histogram(
                    self.name, self.description, self.labels, buckets=LATENCY_BUCKETS_SECONDS
                )
            case "gauge":
                # Several server processes are one target: their values are added up.
                self._collector = prometheus_client.Gauge(
                    self.name, self.description, self.labels, multiprocess_mode="livesum"
                )

    def record(self, value: float = 1.0, *labels: str) -> None:
        """Add to a counter or a gauge, or note one more duration of a histogram."""
        if self._collector is None:
            return
        collector = self._collector.labels(*labels) if labels else self._collector
        if self.kind == "histogram":
            collector.observe(value)  # type: ignore[union-attr]
        else:
            collector.inc(value)  # type: ignore[union-attr]

    def set(self, value: float, *labels: str) -> None:
        """Set a gauge."""
        if self._collector is not None:
            collector = self._collector.labels(*labels) if labels else self._collector
            collector.set(value)  # type: ignore[union-attr]


HTTP_REQUESTS = Metric("counter", "rem_http_requests_total", "Answered HTTP requests.", ("method", "route", "status"))
HTTP_SECONDS = Metric(
    "histogram", "rem_http_request_seconds", "Time from a request to the end of its answer.", ("method", "route")
)
HTTP_IN_PROGRESS = Metric("gauge", "rem_http_requests_in_progress", "HTTP requests that are being answered.")
RATE_LIMIT_REFUSALS = Metric(
    "counter", "rem_rate_limit_refusals_total", "Requests that were refused because of a rate limit.", ("tier",)
)
SQL_STOPPED = Metric(
    "counter", "rem_sql_stopped_total", "Queries with the SQL verb that exceeded their time or memory."
)
POOL_CONNECTIONS = Metric("gauge", "rem_pool_connections", "Database connections of the pools.", ("state",))
POOL_SIZE = Metric("gauge", "rem_pool_max_connections", "Maximum number of database connections of the pools.")

_METRICS = (
    *(HTTP_REQUESTS, HTTP_SECONDS, HTTP_IN_PROGRESS, RATE_LIMIT_REFUSALS),
    *(SQL_STOPPED, POOL_CONNECTIONS, POOL_SIZE),
)


def enable_metrics() -> None:
    """Count from now on. Raise SettingsError if the library for that is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise SettingsError(
            "METRICS__ENABLED needs prometheus-client: install it with `pip install 'remstack[metrics]'`, "
            "or set METRICS__ENABLED=false."
        ) from error
    for metric in _METRICS:
        metric.enable()
