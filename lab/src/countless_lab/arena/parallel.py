"""Games in parallel processes of this machine. A game depends on its seed only, not on where it runs."""

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from countless.errors import InvalidParameter, MissingExtra

T = TypeVar("T")
Progress = Callable[[float], None]  # called with the part that is done

_ALL = -1  # joblib: one for each core


def in_parallel(
    work: Callable[..., T],
    tasks: Sequence[tuple[Any, ...]],
    jobs: int | None = 1,
    progress: Progress | None = None,
) -> list[T]:
    """`work(*task)` for every task, in order, `jobs` at a time; None is one for each core."""
    if jobs is not None and jobs < 1:
        raise InvalidParameter("jobs", jobs, "at least 1")
    if jobs == 1 or len(tasks) == 1:
        return _in_parts(lambda part: [work(*task) for task in part], tasks, 1, progress)
    if find_spec("joblib") is None:
        raise MissingExtra("joblib", "figures", "countless-lab")
    joblib: Any = import_module("joblib")
    with joblib.Parallel(n_jobs=jobs or _ALL) as pool:
        size = 4 * joblib.effective_n_jobs(jobs or _ALL)
        return _in_parts(lambda part: pool(joblib.delayed(work)(*task) for task in part), tasks, size, progress)


def _in_parts(
    work: Callable[[Sequence[tuple[Any, ...]]], list[T]],
    tasks: Sequence[tuple[Any, ...]],
    size: int,
    progress: Progress | None,
) -> list[T]:
    """In one part, or in parts of `size` if there is progress to show."""
    if progress is None:
        return work(tasks)
    results: list[T] = []
    for start in range(0, len(tasks), size):
        results += work(tasks[start : start + size])
        progress(len(results) / len(tasks))
    return results
