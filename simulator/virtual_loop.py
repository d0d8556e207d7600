"""An event loop on virtual time: it never waits. Work for threads runs in it, or in threads that take turns with it.

A *group* is the tasks of one simulated operating system process, so that they can be killed together. A task belongs to
the group of the task that has created it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor, Future
from contextvars import Context, ContextVar, copy_context
from functools import partial
from heapq import heappop, heappush
from itertools import count
from threading import Lock, Thread, current_thread
from typing import Any, TypeVar

from countless.errors import InvariantBroken

T = TypeVar("T")
Work = tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]
_SMALL_GROUP = 32


class Group:
    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = _SMALL_GROUP

    def add(self, task: asyncio.Task[Any]) -> None:
        self._tasks.append(task)
        if len(self._tasks) == self._prune_at:
            self._tasks = self.running
            self._prune_at = 2 * len(self._tasks) + _SMALL_GROUP

    @property
    def running(self) -> list[asyncio.Task[Any]]:
        """In the order in which they were created."""
        return [task for task in self._tasks if not task.done()]


_group: ContextVar[Group | None] = ContextVar("group", default=None)


def new_group() -> tuple[Context, Group]:
    """A context for tasks: those that are started in it belong to the group."""
    context, group = copy_context(), Group()
    context.run(_group.set, group)
    return context, group


class Call:
    """The part of `asyncio.Handle` that asyncio uses, in half its time: a cluster seed makes 10,000."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "_loop")

    def __init__(
        self, loop: "VirtualLoop", callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self._loop = loop
        self._callback = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled

    def _run(self) -> None:
        try:
            self._context.run(self._callback, *self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._loop.error = self._loop.error or error


class VirtualLoop(asyncio.BaseEventLoop):
    """`latency` draws how long a thread needs before it does its work, and how long the result takes afterwards."""

    def __init__(self, latency: Callable[[], float]) -> None:
        super().__init__()
        self._now = 0.0
        self._latency = latency
        self._timers: list[tuple[float, int, Call]] = []
        self._numbers = count()
        self._queues: dict[Any, deque[Work]] = {}  # by executor: one of them does one thing at a time
        self._idle: list[Turns] = []
        self.error: BaseException | None = None  # the first of a callback
        self.set_exception_handler(self._on_error)

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Call:
        call = Call(self, callback, args, context)
        self._ready.append(call)  # type: ignore[attr-defined]
        return call

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Call:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Call:
        call = Call(self, callback, args, context)
        heappush(self._timers, (when, next(self._numbers), call))
        return call

    def _run_once(self) -> None:
        """Nothing arrives from outside: when nothing is ready, the time of the next timer has come."""
        ready: deque[Call] = self._ready  # type: ignore[attr-defined]
        if not ready:
            if not self._timers:
                raise InvariantBroken("nothing is left to do")
            when, _, timer = heappop(self._timers)
            if timer._cancelled:
                return
            self._now = max(self._now, when)
            ready.append(timer)
        for _ in range(len(ready)):
            call = ready.popleft()
            if not call._cancelled:
                call._run()

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task = super().create_task(coro, name=name, context=context)
        group = _group.get() if context is None else context.get(_group)
        if group is not None:
            group.add(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        queue = deque[Work]() if executor is None else self._queues.setdefault(executor, deque())
        queue.append((future, func, args))
        if len(queue) == 1:
            self.call_later(self._latency(), self._work_on, queue)
        return future

    def _work_on(self, queue: deque[Work]) -> None:
        future, func, args = queue[0]
        if future.cancelled():
            self._done(queue, None, None)
        elif isinstance(getattr(func, "__self__", None), TakesTurns):
            thread = self._idle.pop() if self._idle else Turns(self)
            thread.begin(partial(func, *args), partial(self._on_turns_done, thread, queue))
        else:
            self._done(queue, *_outcome(partial(func, *args)))

    def _on_turns_done(self, thread: "Turns", queue: deque[Work], result: Any, error: BaseException | None) -> None:
        self._idle.append(thread)
        self._done(queue, result, error)

    def _done(self, queue: deque[Work], result: Any, error: BaseException | None) -> None:
        future, _, _ = queue.popleft()
        self.call_later(self._latency(), _set, future, result, error)
        if queue:
            self.call_later(self._latency(), self._work_on, queue)

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.error = self.error or context.get("exception") or InvariantBroken(str(context["message"]))

    def _write_to_self(self) -> None: ...

    def close(self) -> None:
        for thread in self._idle:
            thread.end()
        super().close()


def _outcome(func: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return func(), None
    except BaseException as error:
        return None, error


def _set(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # who has waited for it was killed
        return
    if isinstance(error, asyncio.CancelledError):
        future.cancel()
    elif error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


class TakesTurns:
    """Base of objects whose methods wait for the loop while they run in a thread."""

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        thread = current_thread()
        if not isinstance(thread, Turns):
            raise InvariantBroken("waits for the loop in the loop's own thread")
        return thread.wait_for(work)


class Turns(Thread):
    """A thread that runs only while the loop's thread waits for it, so that a seed repeats. It does one work after
    another: to start a thread takes longer than most of them.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(daemon=True)
        self._loop = loop
        self._func: Callable[[], Any] | None = None  # None: it ends
        self._on_done: Callable[[Any, BaseException | None], None]
        self._context: Context
        self._outcome: tuple[Any, BaseException | None] | None = None
        self._mine, self._loops = Lock(), Lock()  # held while it is not the turn of this thread, of the loop's
        self._mine.acquire()
        self._loops.acquire()
        self.start()

    def run(self) -> None:
        self._mine.acquire()
        while self._func is not None:
            self._outcome = _outcome(self._func)
            self._loops.release()
            self._mine.acquire()

    def begin(self, func: Callable[[], Any], on_done: Callable[[Any, BaseException | None], None]) -> None:
        self._func, self._on_done, self._context = func, on_done, copy_context()
        self._resume()

    def end(self) -> None:
        self._func = None
        self._mine.release()
        self.join()

    def _resume(self, _: object = None) -> None:
        """In the loop's thread: until it waits for the loop, or is done."""
        self._mine.release()
        self._loops.acquire()
        if self._outcome is not None:
            outcome, self._outcome = self._outcome, None
            self._on_done(*outcome)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        task = self._loop.create_task(work, context=self._context)
        task.add_done_callback(self._resume)
        self._loops.release()
        self._mine.acquire()
        return task.result()


class InlineExecutor(Executor):
    """For the planner, whose thread would not be repeatable."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
