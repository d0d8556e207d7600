"""The notebook that reproduces the paper runs from its first cell to its last, and its assertions hold."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "reproducing_the_paper.ipynb"
pytestmark = pytest.mark.filterwarnings("ignore")  # of the notebook's own libraries


def load() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-any-return,no-untyped-call]


def printed() -> str:
    """What the cells print. An exception in one of them is raised here."""
    notebook = load()
    NotebookClient(notebook, timeout=1800, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(output.get("text", "") for output in outputs)


@pytest.mark.slow
def test_notebook_runs_at_small_sizes() -> None:
    output = printed()
    assert "synchronisation" in output
    assert "rejected" in output


@pytest.mark.soak
def test_notebook_runs_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTLESS_NOTEBOOK", "full")
    assert "20/20" in printed()


def test_notebook_is_stored_without_output() -> None:
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in load().cells)
