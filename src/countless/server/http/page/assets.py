"""The page at `/`: the files of `server/page`. Its modules are sent as one script and its style sheets as one.

The files contain no data, so no token is needed to load them. Data comes from `/page/feed`, which checks the token.
"""

import re
from functools import cache
from hashlib import sha256
from os import PathLike, stat_result
from pathlib import Path

from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from countless.server.http.page.feed import feed

FOLDER = Path(__file__).parents[2] / "page"
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
_IMPORT = re.compile(r'^import \{ (.+) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:const|function\*?|class) (\w+)", re.MULTILINE)


@cache
def script() -> str:
    """All modules, each as a function after those that it imports: one request, where the browser would need one for
    each, and for their imports only after it has read them.
    """
    modules: dict[str, str] = {}

    def add(name: str) -> None:
        text = (FOLDER / f"{name}.js").read_text(encoding="utf-8")
        for _, imported in _IMPORT.findall(text):
            if imported not in modules:
                add(imported)
        exports = ", ".join(_EXPORT.findall(text))
        body = _IMPORT.sub(r"const { \1 } = \2_module;", text).replace("\nexport ", "\n")
        modules[name] = f"// {name}.js\nconst {name}_module = (() => {{\n{body}return {{ {exports} }};\n}})();\n"

    add("app")
    return '"use strict";\n' + "".join(modules.values())


@cache
def style() -> str:
    return "".join((FOLDER / name).read_text(encoding="utf-8") for name in ("style.css", "parts.css"))


class PageFiles(StaticFiles):
    def file_response(
        self, full_path: str | PathLike[str], stat_result: stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(_HEADERS)
        return response


async def index(request: Request) -> Response:
    return await PageFiles(directory=FOLDER).get_response("index.html", request.scope)


async def page_script(request: Request) -> Response:
    return _text(request, script(), "text/javascript")


async def page_style(request: Request) -> Response:
    return _text(request, style(), "text/css")


def _text(request: Request, text: str, media_type: str) -> Response:
    headers = {**_HEADERS, "etag": f'"{sha256(text.encode()).hexdigest()[:32]}"'}
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    return Response(text, headers=headers, media_type=media_type)


_GZIP = [Middleware(GZipMiddleware, compresslevel=6)]
ROUTES = [
    Route("/", index),
    Route("/page/feed", feed),
    Route("/page/app.js", page_script, middleware=_GZIP),
    Route("/page/style.css", page_style, middleware=_GZIP),
    Mount("/page", PageFiles(directory=FOLDER), middleware=_GZIP),
]
