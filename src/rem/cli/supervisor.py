"""Run a command in child processes, and start one again that ended or whose event loop does not answer any more.

`supervise` replaces the process of a command by a supervisor: this file, as a program that imports nothing of REM, so
that it needs little memory and nothing of REM can stop it. In a child, `Heartbeat` tells the supervisor that the event
loop runs.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import NoReturn

CAN_SUPERVISE = os.name == "posix"
"""Windows can neither replace the program of a process nor hand sockets over."""
HEARTBEAT_VARIABLE = "REM_SUPERVISOR"
"""Given to a child: the descriptor of its heartbeat, the seconds between two beats, and the listening sockets."""
STOP_SIGNALS = [number for number in signal.Signals if number.name in ("SIGTERM", "SIGINT", "SIGHUP")]
MAX_TICK_SECONDS = 1.0
MAX_START_ATTEMPTS = 5
READY_POLL_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to run, and how long a child may be silent."""

    command: Sequence[str] = field(default_factory=lambda: [sys.executable, "-P", "-m", "rem", *sys.argv[1:]])
    """Default: the command of this process."""
    freeze_seconds: float
    """Time without a heartbeat after which a child is ended."""
    kill_seconds: float = 10.0
    """Time without a heartbeat after which a child that was told to stop is killed."""
    retry_seconds: float = 1.0
    """Pause after a start that failed. It doubles with each further one."""
    processes: int = 1
    sockets: Sequence[int] = ()
    """Descriptors of listening sockets. They stay open here, so that connections wait while a child starts again."""
    announcement: str = ""
    """Printed when the first child is ready."""
    folder: str | None = None
    """Deleted at the end."""
    logs_json: bool = False

    @property
    def tick_seconds(self) -> float:
        """Return the time between two heartbeats, and between two looks at the children."""
        return min(MAX_TICK_SECONDS, self.freeze_seconds / 5, self.kill_seconds / 5)


def supervise(options: Options) -> NoReturn:
    """Become the supervisor. This process keeps its id, and ends with the exit code of its children."""
    for descriptor in options.sockets:
        os.set_inheritable(descriptor, True)
    # A signal that arrives before the supervisor has its handlers waits for them.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.execv(sys.executable, [sys.executable, "-I", __file__, json.dumps(asdict(options))])  # noqa: S606


class Heartbeat:
    """The side of the child: tells the supervisor, from when it is ready, again and again that its event loop runs."""

    def __init__(self, channel: socket.socket, seconds: float, sockets: list[socket.socket]) -> None:
        self._channel = channel
        self._seconds = seconds
        self.sockets = sockets
        """The listening sockets that the children share."""

    @classmethod
    def from_environment(cls) -> Heartbeat | None:
        """Return the heartbeat of this process; None if no supervisor has started it."""
        if (text := os.environ.pop(HEARTBEAT_VARIABLE, None)) is None:
            return None
        channel, seconds, *listening = text.split(",")
        # Processes that this one starts inherit neither: they could keep the port.
        sockets = [socket.socket(fileno=int(descriptor)) for descriptor in (channel, *listening)]
        for each in sockets:
            each.setblocking(False)
            each.set_inheritable(False)
        return cls(sockets[0], float(seconds), sockets[1:])

    @asynccontextmanager
    async def beating(self, is_ready: Callable[[], bool] = lambda: True) -> AsyncIterator[None]:
        """Send heartbeats while the block runs, from when it is ready. Stop this process if the supervisor has ended.

        A process that is not ready has all the time that it needs.
        """
        import asyncio

        loop = asyncio.get_running_loop()

        def stop_as_orphan() -> None:
            # The supervisor sends nothing: its end is all that there is to read.
            loop.remove_reader(self._channel)
            signal.raise_signal(signal.SIGTERM)

        async def beat() -> None:
            is_beating = False
            while True:
                if is_beating := is_beating or is_ready():
                    self._send_beat()
                await asyncio.sleep(self._seconds if is_beating else READY_POLL_SECONDS)

        loop.add_reader(self._channel, stop_as_orphan)
        beats = asyncio.create_task(beat())
        try:
            yield
        finally:
            beats.cancel()
            loop.remove_reader(self._channel)

    def _send_beat(self) -> None:
        # A supervisor that is suspended does not read; one that has ended is noticed by the reader.
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            self._channel.send(b".")


@dataclass(eq=False)
class Child:
    """A child process, as the supervisor knows it."""

    pid: int
    channel: socket.socket
    is_ready: bool = False
    is_stopping: bool = False
    silent_seconds: float = 0.0
    """Time since its last heartbeat in which the supervisor itself was running, too."""


@dataclass(eq=False)
class ChildSlot:
    """A slot for one child at a time."""

    child: Child | None = None
    failed_starts: int = 0
    pause_seconds: float = 0.0


@dataclass(eq=False)
class Supervisor:
    """Starts the children, listens to their heartbeats, and passes signals on."""

    options: Options
    slots: list[ChildSlot] = field(init=False)
    exit_code: int = 0
    is_stopping: bool = False
    has_been_ready: bool = False

    def __post_init__(self) -> None:
        self.slots = [ChildSlot() for _ in range(self.options.processes)]
        self._sockets = [socket.socket(fileno=descriptor) for descriptor in self.options.sockets]
        self._selector = selectors.DefaultSelector()
        self._wake, wakeup = socket.socketpair()
        for end in (self._wake, wakeup):
            end.setblocking(False)
        self._wakeup = wakeup
        self._selector.register(self._wake, selectors.EVENT_READ)

    def run(self) -> int:
        """Supervise until a signal, or until no child can start. Return the exit code."""
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        for number in (*STOP_SIGNALS, signal.SIGCHLD):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        last_tick = time.monotonic()
        self._start_children(0.0)
        while any(slot.child for slot in self.slots) or not self.is_stopping:
            self._receive(self._selector.select(self.options.tick_seconds))
            self._reap()
            now = time.monotonic()
            # If the supervisor was suspended, the children probably were, too: that time does not count.
            elapsed, last_tick = min(now - last_tick, 2 * self.options.tick_seconds), now
            for child in self._children:
                self._check(child, elapsed)
            self._start_children(elapsed)
        return self.exit_code

    @property
    def _children(self) -> list[Child]:
        return [slot.child for slot in self.slots if slot.child is not None]

    def _receive(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        for key, _ in ready:
            if key.fileobj is self._wake:
                for number in self._wake.recv(4096):
                    if number in STOP_SIGNALS:
                        self._stop(signal.Signals(number))
                continue
            child: Child = key.data
            if child.channel.recv(4096):
                self._note_beat(child)
            else:
                # It ends: that it has ended is known from its exit code.
                self._selector.unregister(child.channel)

    def _note_beat(self, child: Child) -> None:
        child.silent_seconds = 0.0
        if child.is_ready:
            return
        child.is_ready = True
        for slot in self.slots:
            if slot.child is child:
                slot.failed_starts = 0
        if not self.has_been_ready and self.options.announcement:
            _print(self.options.announcement)
        self.has_been_ready = True

    def _check(self, child: Child, elapsed: float) -> None:
        """Note that a child has been silent for a while longer, and end it if that was too long."""
        child.silent_seconds += elapsed
        if child.is_stopping:
            if child.silent_seconds > self.options.kill_seconds:
                self._signal(child, signal.SIGKILL)
        elif child.is_ready and child.silent_seconds > self.options.freeze_seconds:
            self._log(
                "ERROR", f"Process {child.pid} has not answered for {self.options.freeze_seconds:g} s: it is ended."
            )
            self._signal(child, signal.SIGTERM)

    def _stop(self, number: signal.Signals) -> None:
        """Pass a signal on, and start no child any more."""
        self.is_stopping = True
        for listening in self._sockets:
            listening.close()
        for child in self._children:
            self._signal(child, signal.SIGTERM if number == signal.SIGHUP else number)

    def _signal(self, child: Child, number: signal.Signals) -> None:
        child.is_stopping = True
        child.silent_seconds = 0.0
        os.kill(child.pid, number)

    def _reap(self) -> None:
        """Note the children that have ended. As the first process of a container, also collect those of others."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                for slot in self.slots:
                    if slot.child is not None and slot.child.pid == pid:
                        self._end(slot, slot.child, os.waitstatus_to_exitcode(status))

    def _end(self, slot: ChildSlot, child: Child, code: int) -> None:
        """Decide what follows the end of a child: another one, now or later, or the end of the supervisor."""
        slot.child = None
        if child.channel in self._selector.get_map():
            self._selector.unregister(child.channel)
        child.channel.close()
        reason = f"signal {-code}" if code < 0 else f"exit code {code}"
        if self.is_stopping:
            self.exit_code = self.exit_code or _to_exit_code(code)
        elif child.is_ready:
            self._log("WARNING", f"Process {child.pid} has ended ({reason}): another one starts.")
        elif not self.has_been_ready or slot.failed_starts + 1 >= MAX_START_ATTEMPTS:
            # A child that exits has said why.
            if code < 0 or self.has_been_ready:
                self._log("ERROR", f"Process {child.pid} has ended while it started ({reason}): see the log above.")
            self.exit_code = _to_exit_code(code)
            self._stop(signal.SIGTERM)
        else:
            slot.pause_seconds = self.options.retry_seconds * 2**slot.failed_starts
            slot.failed_starts += 1
            text = f"Process {child.pid} has ended while it started ({reason}): "
            self._log("ERROR", f"{text}the next attempt follows in {slot.pause_seconds:g} s.")

    def _start_children(self, elapsed: float) -> None:
        """Start a child at each free slot; until the first is ready only that one, so that it reports errors once."""
        for slot in self.slots if self.has_been_ready else self.slots[:1]:
            slot.pause_seconds -= elapsed
            if slot.child is None and slot.pause_seconds <= 0 and not self.is_stopping:
                slot.child = self._start_child()

    def _start_child(self) -> Child:
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.set_inheritable(True)
            numbers = (theirs.fileno(), self.options.tick_seconds, *self.options.sockets)
            environment = {**os.environ, HEARTBEAT_VARIABLE: ",".join(map(str, numbers))}
            # In a group of its own, Ctrl-C reaches the child once, from here.
            pid = os.posix_spawn(
                self.options.command[0], list(self.options.command), environment, setpgroup=0, setsigmask=()
            )
        ours.setblocking(False)
        child = Child(pid, ours)
        self._selector.register(ours, selectors.EVENT_READ, child)
        return child

    def _log(self, level: str, message: str) -> None:
        now = time.time()
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now)) + f".{int(now * 1000) % 1000:03}"
        moment += time.strftime("%z", time.localtime(now))
        line = {"time": moment, "level": level, "message": message, "module": "rem.cli.supervisor"}
        _print(json.dumps(line) if self.options.logs_json else f"{moment} {level} {message}")


def _print(line: str) -> None:
    # Whoever read the log may be gone.
    with suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _to_exit_code(code: int) -> int:
    """Return the exit code as a shell reports it: a signal counts from 128."""
    return 128 - code if code < 0 else code


def main() -> int:
    """Run the supervisor with the options in the first argument."""
    options = Options(**json.loads(sys.argv[1]))
    try:
        return Supervisor(options).run()
    finally:
        if options.folder is not None:
            import shutil

            shutil.rmtree(options.folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
