"""Lines of the log: one for each record, with the time; JSON that can be read again."""

import json
import logging
import re
from collections.abc import Iterator
from io import StringIO

import pytest

from countless.server import logs
from countless.server.audit import AuditLog

NAMES = ("countless", "uvicorn", logs.AUDIT)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[StringIO]:
    """The loggers are as before afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in NAMES}
    root.handlers.clear()  # `configure` would close those of pytest
    monkeypatch.setattr(logging.getLogger("uvicorn"), "propagate", True)  # an earlier uvicorn.Config may say False
    yield StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, number in levels.items():
        logging.getLogger(name).setLevel(number)


def test_plain_lines_have_time_level_and_logger(stream: StringIO) -> None:
    logs.configure("warning", "plain", stream)
    logging.getLogger("countless.commit").info("not shown")
    logging.getLogger("countless.commit").warning("save failed: %s", "disk full")
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(rf"{time} WARNING countless\.commit: save failed: disk full\n", stream.getvalue())


def test_json_lines_have_the_traceback_and_the_fields_of_the_audit_log(stream: StringIO) -> None:
    logs.configure("critical", "json", stream)
    logging.getLogger("uvicorn.error").critical("failed", exc_info=ValueError("two\nlines"))
    AuditLog(None).record("deleted", "192.0.2.1", path='/api/v1/counters/"x"\n')  # whatever the level is
    failed, deleted = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (failed["level"], failed["logger"], failed["message"]) == ("critical", "uvicorn.error", "failed")
    assert "ValueError: two\nlines" in failed["exception"]
    assert (deleted["event"], deleted["who"], deleted["path"]) == ("deleted", "192.0.2.1", '/api/v1/counters/"x"\n')
    assert failed["time"].endswith("Z")
