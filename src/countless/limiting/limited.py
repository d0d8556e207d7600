"""`countless.limited`: a limit on calls of a function.

    @countless.limited("exports/{tenant}")
    def export(tenant: str) -> None: ...

The fields of the name are arguments of the function. A call beyond the limit raises `LimitExceeded`; the function does
not run.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from functools import partial, wraps
from inspect import (
    Signature,
    isasyncgenfunction,
    isbuiltin,
    iscoroutinefunction,
    isfunction,
    isgeneratorfunction,
    ismethod,
    signature,
)
from typing import Any, ParamSpec, TypeVar, cast

from countless.client.budgets.requests import WAIT_S
from countless.client.client import Client
from countless.core.parameters import require_bool, require_integer
from countless.errors import InvalidParameter
from countless.limiting.charge import KEY, Values
from countless.limiting.limit import PERIOD_WAIT_S, Limit
from countless.limiting.registered import require_not_registered

P = ParamSpec("P")
R = TypeVar("R")
Cost = int | Callable[..., int]


def limited(
    budget: str,
    *,
    client: Client | None = None,
    key: Callable[..., object] | None = None,
    cost: Cost = 1,
    hold: bool = False,
    wait: float | str = WAIT_S,
    timeout: float = PERIOD_WAIT_S,
    on_unreachable: str = "refuse",
    shadow: bool = False,
    policy: str = "default",
    counter: str = "limited_requests",
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that lets a function run while a budget lasts, over all processes that call it.

    A call that is not admitted raises `LimitExceeded`, `Starved`, `Unreachable` or `UnknownBudget`.

    Args:
        budget: Its name. Fields in it are arguments of the function: `exports/{tenant}`.
        client: From `connect`. None: `default_client()`.
        key: A function of the arguments that returns the field `{key}`. It returns None for calls that are not limited.
        cost: Units of a call, or a function of the arguments that returns them.
        hold: The units are in use while the function runs, a generator until it ends. None is spent.
        wait: Seconds to wait for the coordinator, or `"period"`: until it answers, and the period or rolling window has
            room.
        timeout: With `wait="period"`: the longest wait, in seconds.
        on_unreachable: While the quota is unknown, `"refuse"` raises and `"allow"` runs the function.
        shadow: Run every call; count and log what would have been refused.
        policy: Name of the limit in logs and in the counter.
        counter: Name of a counter of calls that were not admitted.
    """
    require_bool("hold", hold)
    if not callable(cost):
        require_integer("cost", cost, 0)
    if key is not None and not callable(key):
        raise InvalidParameter("key", key, "a function of the arguments")
    limit = Limit(
        client, budget, wait=wait, timeout=timeout, on_unreachable=on_unreachable, shadow=shadow, policy=policy,
        counter=counter, hold=hold,
    )  # fmt: skip

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        return cast(Callable[P, R], _limited(function, Calls(function, limit, key, cost, hold=hold)))

    return decorate


class Calls:
    """The calls of one function: which units each needs."""

    def __init__(
        self, function: Callable[..., Any], limit: Limit, key: Callable[..., object] | None, cost: Cost, *, hold: bool
    ) -> None:
        is_partial = isinstance(function, partial)
        if not (isfunction(function) or ismethod(function) or isbuiltin(function) or is_partial):
            raise InvalidParameter(
                "function", function, "a function: put limited below decorators that return something else"
            )
        # Django's `method_decorator` decorates a method for each request, as a partial function that wraps it unbound.
        if isfunction(function):
            require_not_registered(function)
        named = limit.fields and key is None
        self._signature = signature(function, follow_wrapped=not is_partial) if named else Signature()
        parameters = self._signature.parameters
        self._others = next((each.name for each in parameters.values() if each.kind is each.VAR_KEYWORD), None)
        if self._others is None:
            _require_fields(limit, tuple(parameters) if key is None else (KEY,))
        if key is not None and not limit.fields:
            raise InvalidParameter("budget", limit.budget, "a name with {key} if a key is given")
        self._limit = limit
        self._key = key
        self._cost = cost
        self._hold = hold

    def admit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> AbstractContextManager[object]:
        """Raise if a call may not run; otherwise return what it runs in."""
        values, cost = self._units(args, kwargs)
        if self._hold:
            return self._limit.acquire(values, cost) or nullcontext()
        self._limit.take(values, cost)
        return nullcontext()

    async def aadmit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> AbstractContextManager[object]:
        values, cost = self._units(args, kwargs)
        if self._hold:
            return await self._limit.aacquire(values, cost) or nullcontext()
        await self._limit.atake(values, cost)
        return nullcontext()

    def _units(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Values, int]:
        values: dict[str, object] = {}
        if self._key is not None:
            values[KEY] = self._key(*args, **kwargs)
            if values[KEY] is None:
                return values, 0
        elif self._limit.fields:
            call = self._signature.bind(*args, **kwargs)
            call.apply_defaults()
            if self._others is not None:  # as a view that Flask makes of a class
                call.arguments.update(call.arguments.pop(self._others))
                _require_fields(self._limit, call.arguments)
            values = call.arguments
        return values, self._cost(*args, **kwargs) if callable(self._cost) else self._cost


def _require_fields(limit: Limit, known: Collection[str]) -> None:
    if unknown := [field for field in limit.fields if field not in known]:
        allowed = f"a name whose fields are of these: {', '.join(known)}; {unknown[0]} is none of them"
        raise InvalidParameter("budget", limit.budget, allowed)


def _limited(function: Callable[..., Any], calls: Calls) -> Callable[..., Any]:
    if isasyncgenfunction(function):

        @wraps(function)
        async def stream(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            with await calls.aadmit(args, kwargs), suppress(StopAsyncIteration):
                async with aclosing(function(*args, **kwargs)) as items:
                    item = await anext(items)
                    while True:  # as `yield from`, which coroutines do not have
                        try:
                            sent = yield item
                        except GeneratorExit:
                            raise
                        except BaseException as thrown:
                            item = await items.athrow(thrown)
                        else:
                            item = await items.asend(sent)

        return stream
    if isgeneratorfunction(function):

        @wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with calls.admit(args, kwargs):
                return (yield from function(*args, **kwargs))

        return generate
    if iscoroutinefunction(function):

        @wraps(function)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            with await calls.aadmit(args, kwargs):
                return await function(*args, **kwargs)

        return run_async

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with calls.admit(args, kwargs):
            return function(*args, **kwargs)

    return run
