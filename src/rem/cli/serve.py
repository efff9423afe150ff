"""`rem serve`: the HTTP API."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NoReturn, TypeAlias

import typer

LogLevel: TypeAlias = Literal["critical", "error", "warning", "info", "debug"]


def serve(
    host: Annotated[
        str | None, typer.Option(help="The address to listen on; 127.0.0.1 unless API__HOST says otherwise.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port; 8000 unless API__PORT says otherwise.")
    ] = None,
    reload: Annotated[
        bool | None,
        typer.Option("--reload/--no-reload", help="Start anew when the code changes, for development; not by default."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=64, help="How many processes serve.")] = None,
    log_level: Annotated[LogLevel | None, typer.Option(help="How much is logged; info by default.")] = None,
    allow_unauthenticated: Annotated[
        bool,
        typer.Option("--allow-unauthenticated", help="Listen beyond this machine although nobody has to log in."),
    ] = False,
) -> None:
    """Serve the HTTP API until interrupted. The embedded database is started if no other is configured."""
    import math
    from pathlib import Path

    import uvicorn

    import rem
    from rem.cli.runtime import print_to_stderr, run_with_rem
    from rem.settings import get_settings

    settings = get_settings()
    api = settings.api
    host, port = host or api.host, api.port if port is None else port
    workers, reload = workers or api.workers, api.reload if reload is None else reload
    _check(host, workers, is_reloading=reload, allow_unauthenticated=allow_unauthenticated)
    port = _free_port(host, port)
    if settings.postgres.enabled:
        # Opening once here shows the progress of a first start, and stops before the workers do if something is wrong.
        run_with_rem(_nothing)
    address = f"[{host}]" if ":" in host else host
    print_to_stderr(f"REM listens on http://{address}:{port} (documentation at /docs). Stop with Ctrl-C.")
    _end_well_when_terminated()
    uvicorn.run(
        "rem.api.main:app",
        host=host,
        port=port,
        workers=workers,
        reload=reload,
        # Only the code: what REM writes may lie below the current folder.
        reload_dirs=[str(Path(rem.__file__).parent)] if reload else None,
        log_config=_log_config(log_level or api.log_level),
        # The request log says the same, without what stands in paths and query strings.
        access_log=False,
        timeout_graceful_shutdown=math.ceil(api.shutdown_seconds),
    )


def _log_config(level: str) -> dict[str, Any]:
    """The logging of each process of the server, in the form that uvicorn hands to all of them."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"rem": {"()": "rem.api.logs.LogHandler", "min_level": level.upper()}},
        "loggers": {"uvicorn": {"handlers": ["rem"], "level": level.upper(), "propagate": False}},
    }


def _check(host: str, workers: int, *, is_reloading: bool, allow_unauthenticated: bool) -> None:
    from rem.errors import InvalidInputError

    if not _is_loopback(host) and not allow_unauthenticated:
        raise InvalidInputError(
            f"Anyone who reaches {host} could use this API, because it has no authentication: listen on 127.0.0.1, "
            "or say --allow-unauthenticated."
        )
    if is_reloading and workers > 1:
        raise InvalidInputError("--reload is for one process: leave --workers out, or --reload.")


def _end_well_when_terminated() -> None:
    """A server that is asked to end by SIGTERM, as by a supervisor, has ended well when it has."""
    import signal

    def end(_number: int, _frame: object) -> NoReturn:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)


async def _nothing(_rem: object) -> None:
    return None


def _free_port(host: str, port: int) -> int:
    """The port, or any that is free for 0; an error now if it cannot be had, rather than one from each worker."""
    import errno
    import os
    import socket

    from rem.errors import InvalidInputError

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.getaddrinfo(host, port, family)
        with socket.create_server((host, port), family=family) as probe:
            free: int = probe.getsockname()[1]
            return free
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidInputError(f"{host} is no address of this machine: choose another with --host.") from error
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        option = "--host" if error.errno == errno.EADDRNOTAVAIL else "--port"
        raise InvalidInputError(
            f"REM cannot listen on port {port} of {host} ({reason}): choose another with {option}."
        ) from error


def _is_loopback(host: str) -> bool:
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
