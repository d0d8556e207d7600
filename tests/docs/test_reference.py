"""The reference says what the code does: pages made from the code are fresh, test vectors are true."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import countless
from countless.core import messages, triggers
from countless.core.budget import messages as budget_messages
from countless.wire import frames
from countless.wire.frames import decode_down, decode_up, encode_frames

ROOT = Path(__file__).parents[2]
WIRE = (ROOT / "design/wire.md").read_text(encoding="utf-8")
VECTORS = re.findall(r"^\| `(\w+\(.*)` \| `([0-9a-f ]+)` \|$", WIRE, re.MULTILINE)
NAMES = {**vars(budget_messages), **vars(messages), **vars(triggers), **{kind.__name__: kind for kind in frames.ITEMS}}


def test_pages_made_from_the_code_are_up_to_date() -> None:
    command = [sys.executable, "-m", "tools.reference", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"run python -m tools.reference: {result.stdout}{result.stderr}"


def test_client_shows_what_the_reference_describes_and_nothing_else() -> None:
    page = (ROOT / "docs/reference/python/client.md").read_text(encoding="utf-8")
    section = page.partition("\n## Client\n")[2].partition("\n## ")[0]
    headings, rows = (
        re.findall(r"^### Client\.(\w+)$", section, re.MULTILINE),
        re.findall(r"^- `(\w+)` \(`", section.partition("\n### ")[0], re.MULTILINE),
    )
    (elsewhere,) = re.findall(r"^As in \[Reader\].*: (.*)\.$", section, re.MULTILINE)
    client = countless.connect("http://127.0.0.1:9", site="here")
    described = {*headings, *rows, *re.findall(r"\w+", elsewhere)}
    assert {name for name in dir(client) if not name.startswith("_")} == described


def test_every_variable_that_a_client_reads_is_in_the_configuration_page() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/countless/client").glob("*.py"))
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    variables = set(re.findall(r"COUNTLESS_[A-Z_]+", sources))
    assert variables
    assert not {name for name in variables if f"`{name}`" not in page}


@pytest.mark.parametrize(("item", "data"), VECTORS)
def test_wire_vectors_are_what_the_codec_writes(item: str, data: str) -> None:
    expected = eval(item, dict(NAMES))  # noqa: S307 - our own page
    (frame,) = encode_frames([expected])
    assert frame[1:].hex(" ") == data
    decode = decode_up if type(expected) in frames.UP_ITEMS else decode_down
    assert decode(b"\x91" + bytes.fromhex(data)) == [expected]


def test_every_item_has_a_row() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| (site|coordinator) \|", WIRE, re.MULTILINE)
    senders = ["site" if kind in frames.UP_ITEMS else "coordinator" for kind in frames.ITEMS]
    assert rows == [(str(n), kind.__name__, senders[n]) for n, kind in enumerate(frames.ITEMS)]


def test_every_item_and_trigger_has_a_vector() -> None:
    kinds = {item.partition("(")[0] for item, _ in VECTORS}
    assert kinds == {kind.__name__ for kind in frames.ITEMS}
    for trigger in ("EveryNth", "GeometricGrowth", "BernoulliSampling", "OncePerBlock", "OffsetMultiple"):
        assert any(f" {trigger}(" in item for item, _ in VECTORS)
