"""The page at `/`: the files of `server/page`, and plotly's script from the plotly package.

The files contain no data, so no token is needed to load them. Data comes from `/page/feed`, which checks the token.
"""

import asyncio
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from os import PathLike, stat_result
from pathlib import Path
from typing import NamedTuple

import msgspec
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from countless.server.http.page_feed import feed

FOLDER = Path(__file__).parents[1] / "page"
# Nothing from other hosts, nothing inline, no eval, no frames, no forms that send anything.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}
_ONE_YEAR = f"public, max-age={365 * 86_400}, immutable"
# Parts of plotly insert a style sheet (for maps, which the page does not draw) unless there is an element with its id.
# The policy forbids that, so the page creates elements with these ids.
_STYLE_IDS = re.compile(rb'getElementById\("([0-9a-f]{64})"\)')


class Plotly(NamedTuple):
    """plotly's script in the installed package. The package is not imported."""

    script: Path
    version: str
    style_ids: list[str]


@cache
def find_plotly() -> Plotly | None:
    try:
        package = distribution("plotly")
    except PackageNotFoundError:
        return None
    script = Path(str(package.locate_file("plotly/package_data/plotly.min.js")))
    if not script.is_file():
        return None
    ids = dict.fromkeys(_STYLE_IDS.findall(script.read_bytes()))
    return Plotly(script, package.version, [each.decode() for each in ids])


class PageFiles(StaticFiles):
    def file_response(
        self, full_path: str | PathLike[str], stat_result: stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(_HEADERS)
        return response


async def index(request: Request) -> Response:
    return await PageFiles(directory=FOLDER).get_response("index.html", request.scope)


async def charts(request: Request) -> Response:
    """The address of the script for charts, or null. The address changes with plotly's version."""
    plotly = await asyncio.to_thread(find_plotly)
    found = plotly and {"script": f"/page/plotly.js?{plotly.version}", "styles": plotly.style_ids}
    return Response(msgspec.json.encode(found), headers=_HEADERS, media_type="application/json")


async def plotly_script(request: Request) -> Response:
    plotly = await asyncio.to_thread(find_plotly)
    if plotly is None:
        return Response("charts need: pip install plotly\n", 404, media_type="text/plain")
    response = await PageFiles(directory=plotly.script.parent).get_response(plotly.script.name, request.scope)
    response.headers["cache-control"] = _ONE_YEAR
    return response


_GZIP = [Middleware(GZipMiddleware, compresslevel=6)]
ROUTES = [
    Route("/", index),
    Route("/page/feed", feed),
    Route("/page/charts", charts),
    Route("/page/plotly.js", plotly_script, middleware=_GZIP),
    Mount("/page", PageFiles(directory=FOLDER), middleware=_GZIP),
]
