"""Starts the program again when a file changes, while developing."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from hookgate._cli.options import UsageError

logger = logging.getLogger("hookgate")

_FIRST_WATCH_MS: Final = 100
"""After which time the folders are watched for certain, in milliseconds."""


def reload(arguments: Sequence[str], plugins: Sequence[str]) -> int:
    """Runs the program without `--reload`, and again when a Python file changes.

    Watches the current folder and those of the plugins' files, with all below them. Runs until SIGTERM or SIGINT, also
    while the plugin has a mistake. Returns the exit code.

    :raises UsageError: If `watchfiles` isn't installed.
    """
    try:
        from watchfiles import PythonFilter, watch
    except ImportError:
        raise UsageError("--reload needs watchfiles: run `pip install 'hookgate[reload]'`") from None
    command = [sys.executable, "-m", "hookgate", *(it for it in arguments if it != "--reload")]
    stop = threading.Event()

    def end(_: int, __: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    child: subprocess.Popen[bytes] | None = None
    changes = watch(
        *_folders(plugins),
        watch_filter=PythonFilter(),
        stop_event=stop,
        raise_interrupt=False,
        rust_timeout=_FIRST_WATCH_MS,
        yield_on_timeout=True,
    )
    for changed in changes:
        if child is not None and not changed:
            continue
        if child is not None:
            logger.info("a file changed", extra={"attributes": {"files": sorted(path for _, path in changed)}})
            child.terminate()
            child.wait()
        # Only now, when changes are seen. In a group of its own, so that Ctrl-C in a terminal stops it once.
        child = subprocess.Popen(command, start_new_session=True)
    if child is None:
        return 0
    child.terminate()
    return max(child.wait(), 0)


def _folders(plugins: Sequence[str]) -> set[Path]:
    files = (Path(plugin.rpartition(":")[0]) for plugin in plugins)
    return {Path.cwd(), *(file.resolve().parent for file in files if file.suffix == ".py" and file.exists())}
