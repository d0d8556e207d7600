"""Every warning and error of the log, and every alert, is a row of the page about failures, and every row is one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src/countless"
PAGE = (ROOT / "docs/operate/failures.md").read_text(encoding="utf-8")
LEVELS = {"warning": 0, "error": 0, "exception": 0, "critical": 0, "log": 1}  # with the place of the message
LOGGERS = {"log", "_log", "logger", "logging"}
FORWARDS = SOURCES / "client/http_requests.py"  # its callers have the messages


def messages() -> Iterator[tuple[Path, str]]:
    """With the file, the message of each call that may log a warning or worse."""
    for path in sorted(SOURCES.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in LEVELS):
                continue
            logger = call.func.value
            name = logger.attr if isinstance(logger, ast.Attribute) else getattr(logger, "id", "")
            if name in LOGGERS and path != FORWARDS:
                message = getattr(call.args[LEVELS[call.func.attr]], "value", None)
                assert isinstance(message, str), f"{path}:{call.lineno}: the message of a warning is a text"
                yield path, message


def beginning(message: str) -> str:
    """What every line of this message begins with: the event, without its values."""
    return message.partition(":")[0].replace("%%", "%")


def rows(heading: str) -> list[str]:
    """First cells of the tables under a heading, including its subheadings."""
    level, _, _ = heading.partition(" ")
    section = re.split(rf"^#{{1,{len(level)}}} ", PAGE.partition(f"\n{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[
        0
    ]
    tables = re.findall(r"^\|---.*\n((?:\|.*\n)+)", section, re.MULTILINE)
    return [row.split("|")[1].strip(" `") for table in tables for row in table.splitlines()]


def test_each_warning_is_a_row_and_each_row_is_a_warning() -> None:
    known = rows("## Lines of the log")
    logged = {beginning(message): path for path, message in messages()}
    assert len(logged) > 40
    assert not set(logged) - set(known), "docs/operate/failures.md needs a row for each of these"
    assert not set(known) - set(logged), "nothing logs these rows of docs/operate/failures.md"
    assert len(known) == len(set(known))


def test_messages_begin_with_the_event_and_have_values_by_name() -> None:
    for path, message in messages():
        values = message.replace("%%", "")
        assert "%" not in beginning(values), f"{path}: {message}"
        unnamed = re.sub(r"(\w+|%s)='?%[-.\w]+'?", "", values)
        assert not re.search(r"%(?!s$|s\))", unnamed), f"{path}: {message}"


def test_each_alert_is_a_row_and_each_row_is_an_alert() -> None:
    alerts = yaml.safe_load((ROOT / "deploy/prometheus/countless-alerts.yaml").read_text(encoding="utf-8"))
    names = [rule["alert"] for group in alerts["groups"] for rule in group["rules"]]
    assert sorted(rows("## Alerts")) == sorted(names)
