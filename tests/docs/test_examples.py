"""What the docs show is what happens: every Python block runs, every command line exists."""

import re
import shlex
from pathlib import Path

import pytest

from support.commands import command_of
from support.service import Server

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "design").rglob("*.md"))]
SHOWN = re.compile(r"^(?: {4}|)((?:[A-Z_]+=\S+ )*countless [a-z].*)$", re.MULTILINE)
LINES = [
    pytest.param(line, id=f"{page.stem}: {line[:60]}")
    for page in PAGES
    for line in SHOWN.findall(page.read_text(encoding="utf-8").replace("\\\n", ""))
]


def blocks(page: Path) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES[1:] if blocks(page)], ids=lambda page: page.stem)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, names = blocks(page), dict[str, object]()
    if "connect(" not in code:
        exec(code, names)  # noqa: S102 - our own docs
        return
    with Server(tmp_path / "state") as server:
        monkeypatch.setenv("COUNTLESS_URL", server.url)
        code = code.replace("http://127.0.0.1:2686", server.url).replace("/var/lib/myapp", str(tmp_path))
        exec(code, names)  # noqa: S102
        names["client"].close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("line", LINES)
def test_commands_exist(line: str) -> None:
    """The command is there, and so is every option that is shown with it."""
    words = shlex.split(line.partition(" | ")[0].partition("&& ")[0], comments=True)
    rest = words[words.index("countless") + 1 :]
    if rest[0].startswith("-"):
        return
    known = {option for parameter in command_of(rest).params for option in parameter.opts} | {"--help", "-h"}
    for word in rest:
        if word.startswith("--"):
            assert word.partition("=")[0] in known, line
