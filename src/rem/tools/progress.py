"""Progress of long tool calls, as events for the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from rem.events import AnyEvent, ProgressEvent
from rem.tools.consent import ConsentNeeded

if TYPE_CHECKING:
    from rem.tools.env import ToolEnv

LONG_CALL_SECONDS = 1.0
"""A tool call that takes longer is announced, if the tool reports no progress itself."""


@asynccontextmanager
async def report_step(env: ToolEnv, label: str, step: int = 1, total_steps: int = 1) -> AsyncIterator[None]:
    """Tell the client when a step begins, and whether it was completed or failed."""
    begun = ProgressEvent(step=step, total_steps=total_steps, label=label)
    await env.emit(begun)
    try:
        yield
    except Exception as error:
        status = "completed" if isinstance(error, ConsentNeeded) else "failed"
        await env.emit(begun.model_copy(update={"status": status}))
        raise
    await env.emit(begun.model_copy(update={"status": "completed"}))


@asynccontextmanager
async def announce_long_call(env: ToolEnv, tool_name: str) -> AsyncIterator[ToolEnv]:
    """Yield the environment for a tool call. If the call takes long, tell the client that it runs, and its end.

    A tool that reports progress itself is not announced as well.
    """
    has_progress = asyncio.Event()

    async def emit(event: AnyEvent) -> None:
        if isinstance(event, ProgressEvent):
            has_progress.set()
        await env.emit(event)

    async def announce() -> None:
        await asyncio.sleep(LONG_CALL_SECONDS)
        if not has_progress.is_set():
            await _announce_until_cancelled(env, tool_name)

    task = asyncio.create_task(announce())
    try:
        yield replace(env, emit=emit)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _announce_until_cancelled(env: ToolEnv, tool_name: str) -> None:
    begun = ProgressEvent(step=1, total_steps=1, label=f"Running {tool_name}")
    await env.emit(begun)
    try:
        await asyncio.Event().wait()
    finally:
        await env.emit(begun.model_copy(update={"status": "completed"}))
