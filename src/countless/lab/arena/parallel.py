"""Games in parallel: joblib on this machine, or a dask or ray cluster.

The cluster is the one that this process is connected to, else the one that `DASK_SCHEDULER_ADDRESS` or `RAY_ADDRESS`
names, else one that is started on this machine. A game depends on its seed only, not on where it runs.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from countless.errors import InvalidParameter, MissingExtra, UnknownName

T = TypeVar("T")
Progress = Callable[[float], None]  # called with the part that is done

# The package that each backend needs.
BACKENDS = {"local": "joblib", "dask": "distributed", "ray": "ray"}
_ALL = -1  # joblib: one for each core


def in_parallel(
    work: Callable[..., T],
    tasks: Sequence[tuple[Any, ...]],
    jobs: int | None = 1,
    backend: str = "local",
    progress: Progress | None = None,
) -> list[T]:
    """`work(*task)` for every task, in order, `jobs` at a time; None is one for each core."""
    if backend not in BACKENDS:
        raise UnknownName("backend", backend, BACKENDS)
    if jobs is not None and jobs < 1:
        raise InvalidParameter("jobs", jobs, "at least 1")
    if backend == "local" and (jobs == 1 or len(tasks) == 1):
        return _in_parts(lambda part: [work(*task) for task in part], tasks, 1, progress)
    if find_spec("joblib") is None:
        raise MissingExtra("joblib", "lab")
    if find_spec(BACKENDS[backend]) is None:
        raise MissingExtra(BACKENDS[backend], "cluster")
    joblib: Any = import_module("joblib")
    cluster = {"local": _local, "dask": _dask, "ray": _ray}[backend]
    with cluster(jobs) as name, joblib.parallel_config(backend=name, n_jobs=jobs or _ALL), joblib.Parallel() as pool:
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


@contextmanager
def _local(jobs: int | None) -> Iterator[str]:
    yield "loky"


@contextmanager
def _dask(jobs: int | None) -> Iterator[str]:
    distributed: Any = import_module("distributed")
    try:
        distributed.get_client()
    except ValueError:  # not connected
        named = import_module("dask").config.get("scheduler-address", None)
        own = {} if named else {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
        with _reachable("dask", named):
            client = distributed.Client(**own)
        with client:
            yield "dask"
    else:
        yield "dask"


@contextmanager
def _ray(jobs: int | None) -> Iterator[str]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # ray sends usage statistics by default
    ray: Any = import_module("ray")
    ours = not ray.is_initialized()
    if ours:
        with _reachable("ray", os.environ.get("RAY_ADDRESS")):
            ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        cores = int(ray.cluster_resources()["CPU"])
        if jobs is not None and jobs > cores:
            raise InvalidParameter("jobs", jobs, f"at most {cores}, the cores of the ray cluster")
        import_module("ray.util.joblib").register_ray()
        yield "ray"
    finally:
        if ours:
            ray.shutdown()


@contextmanager
def _reachable(backend: str, address: str | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # also timeouts and refused connections
        raise InvalidParameter("backend", backend, f"a cluster that answers; {address} does not ({error})") from error
