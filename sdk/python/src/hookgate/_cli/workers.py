"""Several processes that share a TCP port. gRPC can't be forked, so each is started anew."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import Final

logger = logging.getLogger("hookgate")

WORKER: Final = "HOOKGATE_WORKER"
"""Set in a process that shares its port: the end of a pipe that the parent holds open."""

_MIN_LIFE: Final = 1.0
"""The seconds between two starts of a worker, so that one that crashes at once doesn't use up the machine."""

NOT_STARTED: Final = 78
"""The exit code of a worker that couldn't start (EX_CONFIG). What keeps one from starting keeps the others too."""


class _Workers:
    """The processes. One that ends is replaced until the stop."""

    def __init__(self, count: int, arguments: Sequence[str]) -> None:
        self._command = [sys.executable, "-m", "hookgate", *arguments]
        self._read_end, self._write_end = os.pipe()
        self._environment = {**os.environ, WORKER: str(self._read_end)}
        self._lock = threading.RLock()  # A signal may come while the lock is held.
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._stopping = threading.Event()
        self._failed = False
        self._threads = [threading.Thread(target=self._keep_running) for _ in range(count)]

    def run(self) -> int:
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        return 1 if self._failed else 0

    def stop(self, _: int = 0, __: FrameType | None = None) -> None:
        with self._lock:
            self._stopping.set()
            for process in self._processes:
                process.send_signal(signal.SIGTERM)

    def _keep_running(self) -> None:
        while True:
            with self._lock:
                if self._stopping.is_set():
                    return
                # In a group of its own, so that Ctrl-C in a terminal stops it once.
                process = subprocess.Popen(
                    self._command, env=self._environment, start_new_session=True, pass_fds=[self._read_end]
                )
                self._processes.add(process)
            began = time.monotonic()
            code = process.wait()
            with self._lock:
                self._processes.discard(process)
                if self._stopping.is_set():
                    self._failed = self._failed or code not in (0, -signal.SIGTERM)
                    return
            logger.error("a worker ended", extra={"attributes": {"exit_code": code}})
            if code == NOT_STARTED:
                self._failed = True
                self.stop()
            self._stopping.wait(began + _MIN_LIFE - time.monotonic())


def end_with_parent() -> None:
    """Stops this worker when its parent is gone: it would go on with old rules, beside the workers of a successor."""

    def wait() -> None:
        os.read(int(os.environ[WORKER]), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def run_workers(count: int, arguments: Sequence[str]) -> int:
    """Runs so many processes until SIGTERM or SIGINT, and returns the exit code."""
    workers = _Workers(count, arguments)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, workers.stop)
    return workers.run()
