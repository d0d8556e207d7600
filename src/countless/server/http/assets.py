"""The page at `/`: a handful of small files from this package, and plotly's own script from plotly's.

There is nothing secret in any of them, so anybody may load them; data comes from the feed, which asks who is there.
"""

import asyncio
import gzip
import re
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from countless.server.http.sse import feed

FOLDER = Path(__file__).parents[1] / "page"
# Nothing from elsewhere, nothing inline, no eval, no frames around it, and nothing that a form could send away.
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
}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
_YEAR = 31_536_000
# Some parts of plotly put a style sheet of their own (of maps, which are not drawn here) into the page, unless there is
# an element with its name already. The policy forbids that, so the page has such an element; here is its name.
_OWN_STYLES = re.compile(rb'getElementById\("([0-9a-f]{64})"\)')


class Asset(NamedTuple):
    """A file, ready to be sent."""

    plain: bytes
    packed: bytes
    media_type: str
    tag: str


def _asset(content: bytes, media_type: str) -> Asset:
    tag = f'"{sha256(content).hexdigest()[:16]}"'
    return Asset(content, gzip.compress(content, 6, mtime=0), media_type, tag)


@cache
def files() -> dict[str, Asset]:
    """The page's own files by name. They are small: all of them are kept."""
    found = sorted(file for file in FOLDER.iterdir() if file.suffix in _TYPES)
    return {file.name: _asset(file.read_bytes(), _TYPES[file.suffix]) for file in found}


@cache
def plotly() -> Asset | None:
    """plotly's script from the installed package, which is not imported: only its file is wanted."""
    package = find_spec("plotly")
    if package is None or package.origin is None:
        return None
    script = Path(package.origin).with_name("package_data") / "plotly.min.js"
    return _asset(script.read_bytes(), _TYPES[".js"]) if script.is_file() else None


def _send(request: Request, asset: Asset, cache_control: str) -> Response:
    headers = {**_HEADERS, "cache-control": cache_control, "etag": asset.tag, "vary": "accept-encoding"}
    if asset.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.packed, 200, {**headers, "content-encoding": "gzip"}, asset.media_type)
    return Response(asset.plain, 200, headers, asset.media_type)


async def index(request: Request) -> Response:
    """The page."""
    return _send(request, files()["index.html"], "no-cache")


async def file(request: Request) -> Response:
    """One of its files."""
    asset = files().get(request.path_params["name"])
    return _send(request, asset, "no-cache") if asset else Response("not found\n", 404, media_type="text/plain")


async def charts(request: Request) -> Response:
    """Where the script for charts is, if plotly is installed; its address changes when it does."""
    script = await asyncio.to_thread(plotly)
    found = None
    if script is not None:
        names = [name.decode() for name in dict.fromkeys(_OWN_STYLES.findall(script.plain))]
        found = {"script": f"/page/plotly.js?{script.tag[1:-1]}", "styles": names}
    return Response(msgspec.json.encode(found), 200, {**_HEADERS, "cache-control": "no-cache"}, "application/json")


async def plotly_script(request: Request) -> Response:
    """plotly's script: five megabytes, so it is packed once and kept by browsers for a year."""
    script = await asyncio.to_thread(plotly)
    if script is None:
        return Response("charts need: pip install plotly\n", 404, media_type="text/plain")
    return _send(request, script, f"public, max-age={_YEAR}, immutable")


ROUTES = [
    Route("/", index),
    Route("/page/feed", feed),
    Route("/page/charts", charts),
    Route("/page/plotly.js", plotly_script),
    Route("/page/{name}", file),
]
