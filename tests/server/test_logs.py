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


def test_line_that_is_repeated_is_left_out_until_the_next_minute_and_others_are_not(
    stream: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_700_000_000.0
    monkeypatch.setattr(logging.time, "time", lambda: now)  # type: ignore[attr-defined]
    logs.configure("info", "plain", stream)
    log = logging.getLogger("countless.http")
    for number in range(1000):
        log.warning("invalid request of %s", number)
    log.warning("something else")
    for number in range(100):
        log.info("as many as one likes: %d", number)
        logging.getLogger(logs.AUDIT).warning("deleted %d", number)
    lines = stream.getvalue().splitlines()
    assert len(lines) == logs.MAX_REPEATS + 1 + 200
    assert lines[logs.MAX_REPEATS - 1].endswith("request of 19 (the last such line of this minute: more are left out)")
    now += 60
    log.warning("invalid request of %s", "now")
    assert stream.getvalue().endswith("invalid request of now\n")
