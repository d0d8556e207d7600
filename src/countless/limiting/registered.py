"""Finds a decorator that stands above the one that registers a function: the framework would call the function without
its limit, and nobody would see it.
"""

import gc
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from countless.errors import InvalidParameter

# Their decorators return the function as it was.
FRAMEWORKS = frozenset({"aiohttp", "apscheduler", "bottle", "fastapi", "fastmcp", "flask", "litestar", "mcp", "ninja"})
FRAMEWORKS |= {"pydantic_ai", "quart", "sanic", "starlette"}
MAX_DEPTH = 5  # function, closure, tuple, function, list, blueprint


def require_not_registered(function: Callable[..., Any]) -> None:
    """Raise InvalidParameter if a framework has the function itself, without what decorators have made of it."""
    if framework := _holder(function):
        name = getattr(function, "__qualname__", function)
        message = f"{name} is registered with {framework} already: put limited below the decorator that does so"
        raise InvalidParameter("function", function, message=message)


def _holder(function: Callable[..., Any]) -> str | None:
    seen, found = {id(function)}, [function]
    for _ in range(MAX_DEPTH):
        referrers = gc.get_referrers(*found)
        holders = [each for each in referrers if each is not found and id(each) not in seen and not _is_no_holder(each)]
        for each in holders:
            modules = {kind.__module__ for kind in type(each).__mro__} | {getattr(each, "__module__", None)}
            names = {str(module).partition(".")[0] for module in modules}
            if framework := names & FRAMEWORKS:
                return framework.pop()
        if not holders:
            break
        seen.update(map(id, holders))
        found = holders
    return None


def _is_no_holder(referrer: object) -> bool:
    """Frames and modules refer to every function."""
    is_namespace = isinstance(referrer, dict) and ("__builtins__" in referrer or "__module__" in referrer)
    return is_namespace or isinstance(referrer, FrameType | ModuleType | type)
