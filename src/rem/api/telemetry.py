"""Export traces of agents, models, tools and queries to an OpenTelemetry collector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rem.errors import SettingsError

if TYPE_CHECKING:
    from rem.settings import Settings

FLUSH_TIMEOUT_MS = 5000
"""A collector that does not answer must not block the shutdown for longer."""


@contextmanager
def export_traces(settings: Settings) -> Iterator[None]:
    """Send traces to the collector while the context is open, if OTEL__ENABLED is set. They hold no user texts."""
    if not settings.otel.enabled:
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise SettingsError(
            "OTEL__ENABLED needs the OpenTelemetry SDK: install it with `pip install 'remstack[otel]'`, "
            "or set OTEL__ENABLED=false."
        ) from error
    from opentelemetry import trace
    from pydantic_ai import Agent, InstrumentationSettings

    endpoint = f"{settings.otel.collector_endpoint.rstrip('/')}/v1/traces"
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: settings.otel.service_name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    trace.set_tracer_provider(provider)
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider, include_content=False))
    try:
        yield
    finally:
        Agent.instrument_all(False)
        provider.force_flush(FLUSH_TIMEOUT_MS)
        provider.shutdown()
