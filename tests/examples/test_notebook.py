"""The notebook that reproduces the paper runs from its first cell to its last, and its assertions hold."""

import pytest

from tools.notebook import executed, printed, stored

pytestmark = pytest.mark.filterwarnings("ignore")  # of the notebook's own libraries


@pytest.mark.slow
def test_notebook_prints_at_small_sizes_what_is_stored() -> None:
    assert printed(executed()) == printed(stored()), "python -m tools.notebook stores what the cells print now"


@pytest.mark.soak
def test_notebook_runs_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTLESS_NOTEBOOK", "full")
    assert "20/20" in printed(executed())


def test_stored_outputs_are_six_figures_and_the_results_of_the_small_run() -> None:
    outputs = [output for cell in stored().cells for output in cell.get("outputs", ())]
    assert len([output for output in outputs if "image/png" in output.get("data", {})]) == 6
    assert {output.output_type for output in outputs} == {"stream", "display_data"}
    assert "synchronisation" in printed(stored())
    assert "rejected" in printed(stored())
