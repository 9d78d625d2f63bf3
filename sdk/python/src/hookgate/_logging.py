"""The process's own log: one JSON object per line on stderr. stdout stays the program's."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Final

_LEVELS: Final = {logging.WARNING: "warn", logging.CRITICAL: "error"}


class JsonFormatter(logging.Formatter):
    """Writes a record as a JSON object. `extra={"attributes": {...}}` adds members."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "timestamp": time.replace("+00:00", "Z"),
            "level": _LEVELS.get(record.levelno, record.levelname.lower()),
            "message": record.getMessage(),
        }
        if record.name.partition(".")[0] != "hookgate":
            line["logger"] = record.name
        attributes = getattr(record, "attributes", None)
        if isinstance(attributes, Mapping):
            line.update(attributes)
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = self.formatException(record.exc_info)
        # A log must not fail what it reports, so anything has a form here.
        return json.dumps(line, default=str, skipkeys=True)


def log_to_stderr(logger: logging.Logger) -> None:
    """Writes what a logger gets to stderr, unless something takes it already."""
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
