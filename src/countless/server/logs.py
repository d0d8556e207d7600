"""Lines of the log, on standard error: time, level, logger, message; plain, or as one JSON object for each line."""

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

import msgspec

LOG_LEVELS = ("critical", "error", "warning", "info", "debug")
LOG_FORMATS = ("plain", "json")
AUDIT = "countless.audit"


def timestamp(seconds: float) -> str:
    """
    >>> timestamp(1_700_000_000.25)
    '2023-11-14T22:13:20.250Z'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class PlainFormatter(logging.Formatter):
    """A traceback follows on lines of its own."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  # of the base
        return timestamp(record.created)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),  # of the audit log
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def configure(level: str, form: str, stream: TextIO | None = None) -> None:
    """For the loggers of Countless and uvicorn. The audit log is written whatever the level is."""
    handler = logging.StreamHandler(stream or sys.stderr)
    plain = PlainFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else plain)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    for name in ("countless", "uvicorn"):
        logging.getLogger(name).setLevel(level.upper())
    logging.getLogger(AUDIT).setLevel(logging.INFO)
