"""Names are made and parsed in `countless.wire` alone. Everywhere else a counter, window, series or site is a value.

The test reads every other module of the product: what splits texts at a character that has a meaning in names, or puts
such a character between texts, is either listed here, with what it reads instead, or an error.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import countless

ROOT = Path(countless.__file__).parent
MARKS = "@{}\n/,:"  # in windows, series, families' records, templates, calendars
SPLITTING = {"partition", "rpartition", "split", "rsplit", "removeprefix", "removesuffix", "startswith", "endswith"}
SEARCHING = {"find", "rfind", "index", "rindex"}
# What these modules read is no name of anything that is counted.
OTHER_TEXTS = {
    "agent/envoy.py": "an address",
    "agent/hosts.py": "a Host header",
    "agent/rules.py": "rules of the agent: PATTERN=per,tz,anchor",
    "agent/statsd.py": "lines of StatsD",
    "client/answers.py": "lines for people",
    "client/transport/nats_socket.py": "an address",
    "integrations/limits.py": "a URI",
    "probe.py": "a URL",
    "server/http/api/openapi.py": "paths of operations, docstrings",
    "systemd.py": "the address of a socket",
    "token_file.py": "lines of /proc",
}


def findings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            given = (each.value for each in node.args if isinstance(each, ast.Constant))
            splits = node.func.attr in SPLITTING | SEARCHING and any(map(_is_mark, given))
            if splits or (node.func.attr == "join" and _is_mark(getattr(node.func.value, "value", None))):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.JoinedStr) and _joins_texts(node):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def _is_mark(value: object) -> bool:
    return isinstance(value, str) and value != "" and set(value) <= set(MARKS)


def _joins_texts(text: ast.JoinedStr) -> bool:
    """Two values with nothing but a mark between them, or one with a mark before or after it."""
    if not 2 <= len(text.values) <= 3:
        return False
    constants = [each.value for each in text.values if isinstance(each, ast.Constant)]
    return len(constants) == 1 and isinstance(constants[0], str) and set(constants[0]) <= set("@{}\n")


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(("wire/", "cli/", "planning/", "privacy/", "schemes/")):  # the last four read no names
            yield name, path


def test_no_other_module_parses_or_makes_names() -> None:
    found = {name: [*findings(ast.parse(path.read_text(encoding="utf-8")))] for name, path in modules()}
    wrong = {name: lines for name, lines in found.items() if lines and name not in OTHER_TEXTS}
    assert wrong == {}
    assert OTHER_TEXTS.keys() - {name for name, lines in found.items() if lines} == set()


@pytest.mark.parametrize(
    "line",
    [
        'family, brace, _ = name.partition("{")',
        'group = name.rpartition(":")[0]',
        'is_family = text.startswith("\\n")',
        'site = f"{site_id.site}\\n{name}"',
        'group = f"{name}@{calendar.per}"',
        'record = "\\n".join((name, label))',
    ],
)
def test_line_that_parses_or_makes_a_name_is_found(line: str) -> None:
    assert [*findings(ast.parse(line))]
