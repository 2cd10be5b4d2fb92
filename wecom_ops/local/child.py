"""A child process that never outlives its parent, and is stopped by its own id alone."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1
# Loaded before any fork: a forked child must not search for libraries.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _die_with_parent(death_signal: int) -> Callable[[], None] | None:
    """A pre-exec hook: Linux sends the signal to the child when the thread that made it is gone."""
    if _LIBC is None:
        return None
    libc, parent = _LIBC, os.getpid()

    def hook() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:  # the parent went between the fork and the call above
            os.kill(os.getpid(), death_signal)

    return hook


class Child:
    """One process in a session of its own, so that a Ctrl-C reaches only its parent.

    Start it from the main thread: Linux counts the death of the starting *thread*.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        output: IO[bytes] | int | None = None,
        death_signal: int = signal.SIGTERM,
        identity: tuple[int, int] | None = None,
        foreground: bool = False,
    ) -> None:
        """``identity`` is the (user id, group id) to run as; None keeps the caller's.

        ``foreground`` leaves the child at the terminal: it may read, and gets the Ctrl-C itself.
        """
        self.name = name
        self._foreground = foreground
        user, group = identity or (None, None)
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [str(part) for part in command],
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=None if foreground else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
            start_new_session=not foreground,
            preexec_fn=_die_with_parent(death_signal),  # noqa: PLW1509 - parents are single-threaded
            user=user,
            group=group,
            extra_groups=None if identity is None else [],
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.poll()

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def wait(self, seconds: float) -> bool:
        """Whether it ended in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=seconds)
        return not self.running

    def kill_session(self) -> None:
        """The last resort: this child and what it started, by the id of its own session."""
        if self.running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if self._foreground:
                    self.process.kill()
                else:
                    os.killpg(self.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self, ladder: Sequence[tuple[int, float]]) -> None:
        """Signals one after the other, each with the seconds it is given; then kill."""
        for number, patience in ladder:
            self.signal(number)
            if self.wait(patience):
                return
        self.kill_session()
