"""`counter.count_exceptions()`, a block and a decorator, and `counter.count_calls`: of functions and of coroutines."""

from collections.abc import Iterator
from inspect import iscoroutinefunction

import pytest

import countless
from countless.client.counter import Counter


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    monkeypatch.setenv("COUNTLESS_DISABLE", "1")
    with countless.connect(site="web") as client:
        yield client.counter("failures")


def test_block_counts_the_exception_and_raises_it_on(failures: Counter) -> None:
    with pytest.raises(ValueError, match="bad"), failures.count_exceptions():
        raise ValueError("bad")
    with failures.count_exceptions():
        pass
    assert failures.count == 1


def test_only_exceptions_of_the_kind_count(failures: Counter) -> None:
    with pytest.raises(KeyError), failures.count_exceptions((ValueError, OSError)):
        raise KeyError("other")
    with pytest.raises(KeyboardInterrupt), failures.count_exceptions():
        raise KeyboardInterrupt
    assert failures.count == 0


def test_decorated_function_keeps_its_name_and_result(failures: Counter) -> None:
    @failures.count_exceptions()
    def divide(a: int, b: int) -> float:
        return a / b

    assert (divide(6, b=3), divide.__name__) == (2, "divide")
    with pytest.raises(ZeroDivisionError):
        divide(1, 0)
    assert failures.count == 1


async def test_decorated_coroutine_is_counted_when_it_fails(failures: Counter) -> None:
    @failures.count_exceptions(ZeroDivisionError)
    async def divide(a: int, b: int) -> float:
        return a / b

    assert await divide(6, 3) == 2
    with pytest.raises(ZeroDivisionError):
        await divide(1, 0)
    assert failures.count == 1


async def test_decorated_functions_count_their_calls(failures: Counter) -> None:
    @failures.count_calls
    def divide(a: int, b: int) -> float:
        return a / b

    @failures.count_calls
    async def later(a: int) -> int:
        return a

    assert (divide(6, b=3), divide.__name__, await later(5), iscoroutinefunction(later)) == (2, "divide", 5, True)
    with pytest.raises(ZeroDivisionError):
        divide(1, 0)
    assert failures.count == 3


def test_labels_may_be_numbers(failures: Counter) -> None:
    failures.labels(code=200).inc()
    failures.labels(code="200").inc()
    assert failures.labels(code=200).count == 2
