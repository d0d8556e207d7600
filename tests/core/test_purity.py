"""The core is sans-IO: no socket, clock, thread, hidden randomness or array library is reachable from it.

import-linter has a contract for this; these two tests do not depend on it. One imports the core where all those
modules are gone; the other reads the source.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import countless

PACKAGE = Path(countless.__file__).parent
CORE = sorted((PACKAGE / "core").rglob("*.py"))
MODULES = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in CORE if path.stem != "__init__"]
FORBIDDEN = [
    *("_random", "_socket", "_thread", "asyncio", "concurrent", "contextvars", "http", "io", "logging"),
    *("msgspec", "multiprocessing", "numba", "numpy", "os", "pathlib", "posix", "random", "scipy", "secrets", "select"),
    *("selectors", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time", "urllib", "uuid"),
]
# What the core may use. These are loaded first, because some of them use forbidden modules for themselves.
ALLOWED = [
    "abc",
    "bisect",
    "collections",
    "collections.abc",
    "contextlib",
    "copy",
    "dataclasses",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "itertools",
    "math",
    "types",
    "typing",
]
# The calendar needs the rules of time zones, which are data. It is given every moment, and reads no clock.
DATES = {"datetime", "zoneinfo"}
OURS = ("countless.core", "countless.errors")

IMPORT_WITHOUT_IO = f"""
import sys
import {", ".join([*ALLOWED, *sorted(DATES)])}
sys.path.insert(0, {str(PACKAGE.parent)!r})
for name in {FORBIDDEN!r}:
    sys.modules[name] = None
for name in {MODULES!r}:
    __import__(name)
print(sorted(name for name in sys.modules if name.startswith("countless")))
"""


def test_core_imports_without_io_modules() -> None:
    run = subprocess.run([sys.executable, "-I", "-c", IMPORT_WITHOUT_IO], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    loaded = ast.literal_eval(run.stdout)
    assert {name for name in loaded if not name.startswith("countless.core")} == {"countless", "countless.errors"}


def imports_of(path: Path) -> set[str]:
    """Every module that a file names in an import, wherever in the file."""
    named: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import"
            named.add(node.module or "")
    return named


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(PACKAGE / "core")))
def test_core_module_imports_only_allowed_modules(path: Path) -> None:
    unexpected = {name for name in imports_of(path) if not name.startswith(OURS) and name not in ALLOWED}
    assert unexpected == (DATES if path.name == "calendar.py" else set())


def test_calendar_reads_no_clock() -> None:
    tree = ast.parse((PACKAGE / "core" / "calendar.py").read_text())
    assert {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & {
        "now",
        "today",
        "utcnow",
    } == set()


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(PACKAGE / "core")))
def test_core_module_uses_no_dynamic_imports_or_globals(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert names & {"__import__", "eval", "exec", "open", "input", "print", "globals", "hash", "id"} == set()
    statements = {type(node) for node in ast.walk(tree)}
    assert ast.Global not in statements
    assert ast.Assert not in statements  # invariants must survive -O


def test_init_files_of_sub_packages_import_nothing() -> None:
    """Import contracts do not look through names re-exported by an `__init__`. `countless.asgi` and `countless.privacy`
    (design/privacy/library.md) are for programs; our own modules import from their files.
    """
    importing = re.compile(r"^(from|import) ", re.MULTILINE)
    full = {path.parent.name for path in PACKAGE.glob("*/__init__.py") if importing.search(path.read_text())}
    assert full == {"asgi", "privacy"}
    imports = [f"from countless.{name} import" for name in full]
    assert not [path for path in PACKAGE.rglob("*.py") if any(each in path.read_text() for each in imports)]
