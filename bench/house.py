"""How the source is built: what can be counted in it, and which modules a report enters."""

import ast
import sys
import threading
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from json import loads
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from types import FrameType
from typing import Any, NamedTuple

from bench import figures
from tools.tables import ROOT

SOURCE = ROOT / "src" / "countless"
SHORT_LINES = 60  # a file with fewer is short
KINDS = {"families": "famil", "budgets": "budget"}  # what is in the names of their modules
KIND_FOLDERS = frozenset({"family", "families", "budget", "budgets", "kinds"})
LAYERS = frozenset({"core", "wire", "client", "server"})
NOT_A_BUDGET = "failure_budget"  # the probability that may be spent on errors
WINDOW_S = 2.5  # the page, timers and the recorder do everything that they do by themselves in this time
REPORTS = 6


class SourceFile(NamedTuple):
    path: Path  # in the package
    text: str

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def imported(self) -> set[str]:
        """The modules of the package that it imports."""
        found = set[str]()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
            elif isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
        return {name for name in found if name.startswith("countless.")}


def all_sources(root: Path = SOURCE) -> list[SourceFile]:
    """Files with code."""
    paths = sorted(path.relative_to(root) for path in root.rglob("*.py"))
    files = [SourceFile(path, (root / path).read_text(encoding="utf-8")) for path in paths]
    return [file for file in files if file.text]


def sources(root: Path = SOURCE) -> list[SourceFile]:
    """Those of the product: `integrations/` apart."""
    return [file for file in all_sources(root) if file.path.parts[0] != "integrations"]


def short_files(files: Sequence[SourceFile]) -> list[str]:
    return [f"{file.path} {file.lines}" for file in files if file.lines < SHORT_LINES and file.path.parts[0] != "cli"]


def importers(files: Sequence[SourceFile], word: str) -> list[str]:
    """Files of the layers, outside the folders of the kinds, that import a module with this word in its name."""
    layers = [file for file in files if file.path.parts[0] in LAYERS and not KIND_FOLDERS & {*file.path.parts[:-1]}]
    return [str(file.path) for file in layers if any(_is_about(name, word) for name in file.imported)]


def _is_about(module: str, word: str) -> bool:
    return any(word in part for part in module.split(".") if part != NOT_A_BUDGET)


def classes_used_twice(files: Sequence[SourceFile]) -> list[str]:
    places: dict[str, list[str]] = {}
    for file in files:
        for node in file.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(file.path))
    return [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]


# What a report enters

_called: set[tuple[str, str]] | None = None  # file and function, while they are noted


def _note(frame: FrameType, event: str, argument: object) -> None:
    if event == "call" and _called is not None:
        code = frame.f_code
        _called.add((code.co_filename, code.co_qualname))


@contextmanager
def noted() -> Iterator[set[tuple[str, str]]]:
    """The functions that any thread enters meanwhile."""
    global _called
    found = set[tuple[str, str]]()
    _called = found
    try:
        yield found
    finally:
        _called = None


def modules_of_a_report() -> list[str]:
    """From `add()` to the browser: a coordinator, a program and an open page in one process.

    A module counts if every one of several reports enters a function of it that nobody enters while nothing is counted.
    """
    import countless
    from countless.server.app import build_app
    from countless.server.serve import Server, uvicorn_config
    from countless.server.settings import Settings

    threading.setprofile(_note)
    sys.setprofile(_note)
    try:
        with TemporaryDirectory() as directory:
            settings = Settings(state_dir=directory, open=True, port=0)
            server = Server(uvicorn_config(build_app(settings), settings, "warning"))
            server.config.port = 0
            serving = threading.Thread(target=server.run, daemon=True)
            serving.start()
            while not server.started:
                sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            with countless.connect(f"http://127.0.0.1:{port}", site="one") as client:
                counter = client.counter("requests")
                counter.add()
                page = _Page(port, "requests")
                page.until(1)
                sleep(WINDOW_S)
                with noted() as idle:
                    sleep(WINDOW_S)
                reports = []
                for number in range(REPORTS):
                    with noted() as found:
                        counter.add()
                        page.until(number + 2)
                    reports.append(found - idle)
            server.should_exit = True
            serving.join()
    finally:
        threading.setprofile(None)
        sys.setprofile(None)
    files = set.intersection(*({file for file, _ in report} for report in reports))
    package = Path(countless.__file__).parent
    return sorted(str(Path(file).relative_to(package)) for file in files if Path(file).is_relative_to(package))


class _Page:
    """What a browser gets of one counter."""

    def __init__(self, port: int, name: str) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)
        self._connection.request("GET", f"/page/feed?counter={name}")
        self._response = self._connection.getresponse()
        self._event = ""

    def until(self, total: int) -> None:
        for line in self._response:
            if line.startswith(b"event: "):
                self._event = line[7:].decode().strip()
            elif line.startswith(b"data: ") and self._event == "answer":
                answer: dict[str, Any] = loads(line[6:])
                if answer["estimate"] == total:
                    return
        raise RuntimeError("the page's stream has ended")


def main() -> None:
    files = sources()
    short, twice = short_files(files), classes_used_twice(all_sources())
    lists: dict[str, list[str]] = {f"files under {SHORT_LINES} lines outside cli/": short}
    for kind, word in KINDS.items():
        lists[f"files that import {kind}, outside the folders of kinds"] = importers(files, word)
    lists["class names used twice"] = twice
    lists["modules that a report enters"] = modules_of_a_report()
    lines = sum(file.lines for file in files)
    folders = Tally[str]()
    for file in files:
        folders[file.path.parts[0] if len(file.path.parts) > 1 else "."] += file.lines
    for title, found in lists.items():
        print(f"{title}:", *found, sep="\n    ")
    print("lines of each folder:", ", ".join(f"{name} {number:,}" for name, number in folders.most_common()))
    numbers: dict[str, float] = {"lines of the product": lines, "files with code": len(files)}
    numbers |= {title: len(found) for title, found in lists.items()}
    figures.add("house", numbers)
    for title, number in numbers.items():
        print(f"{title:60} {number:8,.0f}")
