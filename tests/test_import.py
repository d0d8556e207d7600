"""`import countless` must stay light: a program that only counts pays for nothing else."""

import ast
import subprocess
import sys

import pytest

HEAVY = {"numpy", "scipy", "numba", "opendp", "typer", "rich", "asyncio", "plotly", "hypothesis"}
HEAVY |= {"starlette", "uvicorn", "prometheus_client", "countless.schemes", "countless.planning", "countless.server"}
LIBRARY = "from countless import Tracker; Tracker(sites=3).site(0).add()"  # plans for itself: that room it does need


def modules_after(statement: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-c", f"{statement}; import sys; print(sorted(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(ast.literal_eval(run.stdout))


@pytest.mark.parametrize(
    "statement",
    [
        "import countless",
        "import countless.client.local_counter",
        "import countless.wire.codec",
        "import countless; countless.connect('http://127.0.0.1:9').counter('hits').labels(route='/a')",
        LIBRARY,
    ],
)
def test_nothing_heavy_is_imported(statement: str) -> None:
    own = {"countless.schemes", "countless.planning"} if statement == LIBRARY else set()
    assert modules_after(statement) & HEAVY == own


def test_package_import_loads_no_sub_package() -> None:
    loaded = {name for name in modules_after("import countless") if name.startswith("countless")}
    assert loaded == {"countless"}


def test_client_imports_no_scheme_and_no_planner() -> None:
    loaded = modules_after("import countless.client.local_counter")
    rooms = {name.split(".")[1] for name in loaded if name.startswith("countless.")}
    assert rooms == {"client", "core", "errors"}


def test_public_names() -> None:
    import countless

    assert set(countless.__all__) <= set(dir(countless))
    for name in countless.__all__:
        assert getattr(countless, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Traker'"):
        _ = countless.Traker  # type: ignore[attr-defined]  # type checkers refuse it, too
