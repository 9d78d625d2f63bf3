"""Runs the command line."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Sequence

from hookgate._cli.load import LoadError, load_plugins
from hookgate._cli.options import RunOptions, UsageError, parse_run_options, parser
from hookgate._cli.reload import reload
from hookgate._cli.workers import NOT_STARTED, WORKER, end_with_parent, run_workers
from hookgate._logging import log_to_stderr
from hookgate._server.registration import RegistrationError
from hookgate._server.server import serve

logger = logging.getLogger("hookgate")

_MAX_EXIT = 2.0
"""How long the end of the process may take, in seconds. A thread of a handler that doesn't end would hold it up."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command line, and returns the exit code: 1 after a failure, 2 if the arguments are wrong."""
    # The lines of the plugin's own loggers are written in the same form.
    log_to_stderr(logging.getLogger())
    failed = NOT_STARTED if WORKER in os.environ else 1
    try:
        options = parse_run_options(arguments)
        if options.reload:
            return reload(arguments, options.plugins)
        if options.workers > 1 and WORKER not in os.environ:
            return run_workers(options.workers, arguments)
        if WORKER in os.environ:
            end_with_parent()
        asyncio.run(_serve(options))
    except UsageError as error:
        print(f"hookgate: {error}\n\n{parser().format_usage()}", end="", file=sys.stderr)
        return 2
    except (LoadError, OSError, RegistrationError) as error:
        logger.error(str(error))
        return failed
    except Exception as error:
        logger.error("can't serve: %s", error, exc_info=error)
        return failed
    return 0


async def _serve(options: RunOptions) -> None:
    plugins = [plugin for name in options.plugins for plugin in load_plugins(name)]
    server = await serve(
        plugins,
        options.listen,
        tls=options.tls,
        drain_ms=options.drain_ms,
        registration=options.registration,
        reuse_port=WORKER in os.environ,
    )
    await server.stopped()
    # asyncio would wait for the threads of `asyncio.to_thread`.
    _end_soon()


def _end_soon() -> None:
    """Ends the process even if a thread of a handler doesn't."""
    timer = threading.Timer(_MAX_EXIT, os._exit, (0,))
    timer.daemon = True
    timer.start()
