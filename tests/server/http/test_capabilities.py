"""The API, the page and the metrics ask for capabilities: they test no class or kind of a counter, family or budget."""

import ast
from collections.abc import Iterator
from pathlib import Path

import countless

SOURCE = Path(countless.__file__).parent
HTTP = SOURCE / "server" / "http"
TESTS = {"isinstance", "issubclass", "hasattr", "type"}
ALLOWED = {  # what callers send, what is answered, and problems
    "access/auth.py": {"isinstance(response, StreamingResponse)", "isinstance(access, Access)"},
    "answers/sums.py": {
        "isinstance(total, PublicAnswer)",
        "isinstance(total, RollingAnswer)",
        "isinstance(total, WindowAnswer)",
        "isinstance(each, PublicAnswer)",
        "isinstance(each, RollingAnswer)",
        "isinstance(each, WindowAnswer)",
    },
    "api/openapi.py": {
        "isinstance(problem, UnknownName)",
        "isinstance(response, str)",
        "isinstance(response, tuple)",
        "isinstance(response, type)",
    },
    "application.py": {"isinstance(problem, HTTPException)"},
    "sockets/fast_websocket.py": {"hasattr(self, 'scope')"},
    "sockets/websocket.py": {
        "isinstance(error, LimitReached)",
        "isinstance(error, ProtocolError)",
        "isinstance(error, StoreError)",
        "isinstance(error, TimeoutError)",
        "isinstance(error, TokenEnded)",
        "isinstance(items[0], Hello)",
    },
}
READ = {
    "countless.server.sessions.readable",
    "countless.server.sessions.session_table",
    "countless.server.sessions.shares",
}


def class_tests(text: str) -> Iterator[str]:
    """Tests of a class, and comparisons of a kind."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in TESTS:
                yield ast.unparse(node)
            case ast.Match(subject=subject):
                yield ast.unparse(subject)
            case ast.Compare(left=left, comparators=others) if any(map(_is_kind, (left, *others))):
                yield ast.unparse(node)
            case ast.Attribute(attr="__class__"):
                yield ast.unparse(node)


def _is_kind(node: ast.expr) -> bool:
    return "kind" in (getattr(node, "attr", None), getattr(node, "id", None))


def imports_of_kinds(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            is_kind = node.module.startswith(("countless.server.kinds", "countless.server.sessions"))
            yield from names if is_kind and node.module not in READ else ()
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("countless.server.kinds"))


def test_http_tests_no_class_of_a_counter_family_or_budget() -> None:
    found = {str(path.relative_to(HTTP)): set(class_tests(path.read_text())) for path in HTTP.rglob("*.py")}
    assert {name: tests for name, tests in found.items() if tests} == ALLOWED


def test_http_imports_what_is_read_of_counters_and_not_the_counters() -> None:
    assert [(path, *imports_of_kinds(path.read_text())) for path in HTTP.rglob("*.py")] == [
        (path,) for path in HTTP.rglob("*.py")
    ]


def test_class_tests_are_found() -> None:
    text = """
from countless.server.kinds.counter import TrackedCounter
from countless.server.sessions import periodic
def f(counter, rule):
    match counter:
        case TrackedCounter(): return 1
    return isinstance(counter, TrackedCounter) or type(counter) is int or rule.kind == "labels" or counter.__class__
"""
    expected = {"counter", "isinstance(counter, TrackedCounter)", "type(counter)", "rule.kind == 'labels'"}
    assert {*class_tests(text)} == expected | {"counter.__class__"}
    assert [*imports_of_kinds(text)] == [
        "countless.server.kinds.counter.TrackedCounter",
        "countless.server.sessions.periodic",
    ]
