"""Lines of the log, on standard error: time, level, logger, message; plain, or as one JSON object for each line."""

import logging
import sys
from collections import Counter as Tally
from datetime import UTC, datetime
from typing import TextIO

import msgspec

LOG_LEVELS = ("critical", "error", "warning", "info", "debug")
LOG_FORMATS = ("plain", "json")
AUDIT = "countless.audit"
MAX_REPEATS = 20  # of a warning in a minute: a stranger can cause some of them with every request, with a traceback


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


class Repeats(logging.Filter):
    """Leaves out warnings and errors that were logged MAX_REPEATS times in the same minute, whatever their values."""

    def __init__(self) -> None:
        super().__init__()
        self._minute = 0
        self._logged: Tally[tuple[str, str]] = Tally()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.name == AUDIT:
            return True
        minute = int(record.created // 60)
        if minute != self._minute:
            self._minute, self._logged = minute, Tally()
        key = record.name, str(record.msg)
        self._logged[key] += 1
        if self._logged[key] == MAX_REPEATS:
            record.msg = f"{record.msg} (the last such line of this minute: more are left out)"
        return self._logged[key] <= MAX_REPEATS


def configure(level: str, form: str, stream: TextIO | None = None) -> None:
    """For the loggers of Countless and uvicorn. The audit log is written whatever the level is."""
    handler = logging.StreamHandler(stream or sys.stderr)
    plain = PlainFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else plain)
    handler.addFilter(Repeats())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    for name in ("countless", "uvicorn"):
        logging.getLogger(name).setLevel(level.upper())
    logging.getLogger(AUDIT).setLevel(logging.INFO)
