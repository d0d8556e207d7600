"""`python -m tools.notebook`: run the notebook that reproduces the paper, and store what its cells print and draw."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "examples" / "reproducing_the_paper.ipynb"


def stored() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-any-return,no-untyped-call]


def executed() -> nbformat.NotebookNode:
    """The notebook after a run from its first cell to its last. An exception in a cell is raised here."""
    notebook = stored()
    NotebookClient(notebook, timeout=1800, kernel_name="python3", record_timing=False).execute()
    return notebook


def printed(notebook: nbformat.NotebookNode) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(output.get("text", "") for output in outputs)


if __name__ == "__main__":
    nbformat.write(executed(), NOTEBOOK)  # type: ignore[no-untyped-call]
