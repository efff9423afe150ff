"""The entry point of the `rem` command, and of `python -m rem`."""

from __future__ import annotations

import gc
import signal


def main() -> None:
    """Run the command. Ctrl-C ends the process without a traceback, even while the modules are imported."""
    previous = signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Modules stay: to look for garbage among them after every 700 new objects takes a sixth of a start.
    gc.set_threshold(20_000, 20, 20)
    from rem.cli.main import run

    signal.signal(signal.SIGINT, previous)
    run()


if __name__ == "__main__":
    main()
