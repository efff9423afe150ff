"""The fixtures of all tests of deployments."""

from __future__ import annotations

from tests.jobs.conftest import start_worker

__all__ = ["start_worker"]
