"""An event loop on virtual time: it never waits, and work for threads runs in it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from countless.errors import InvariantBroken


class VirtualLoop(asyncio.BaseEventLoop):
    """`latency` draws how long a thread needs before it does its work, and how long the result takes afterwards."""

    def __init__(self, latency: Callable[[], float]) -> None:
        super().__init__()
        self._now = 0.0
        self._latency = latency
        self._selector = self
        self.error: BaseException | None = None  # the first of a callback
        self.set_exception_handler(self._on_error)

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[object]:
        """In place of a selector: nothing arrives from outside, so the time of the next timer has come."""
        if timeout is None:
            raise InvariantBroken("nothing is left to do")
        self._now += timeout
        return []

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        self.call_later(self._latency(), self._run_work, future, func, args)
        return future

    def _run_work(self, future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            result, error = func(*args), None
        except Exception as raised:
            result, error = None, raised
        self.call_later(self._latency(), _set, future, result, error)

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.error = self.error or context.get("exception") or InvariantBroken(str(context["message"]))

    def _process_events(self, events: list[object]) -> None: ...

    def _write_to_self(self) -> None: ...


def _set(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():  # who has waited for it was killed
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class InlineExecutor(Executor):
    """For the planner, whose thread would not be repeatable."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
