"""Operations: one table gives the routes and the OpenAPI document, so they cannot differ.

A counter's name may contain slashes. In a URL they may be percent-encoded or not: `{name}` is the rest of the path.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from inspect import getdoc
from typing import Any

import msgspec
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from countless import __version__
from countless.errors import CountlessError, UnknownName
from countless.server.connection import Turns
from countless.server.http.access.auth import NOTHING, peer_of, until_revoked
from countless.server.http.api.schemas import Problem
from countless.server.storage.base import StoreError

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    scope: str | None  # None: no token is needed
    handler: Handler
    response: type | tuple[type, ...] | str | None  # a struct, or one of several; a media type; None: no body
    status: int = 200
    body: type | None = None
    query: dict[str, dict[str, Any]] = field(default_factory=dict)  # JSON schema of each parameter
    error_statuses: tuple[int, ...] = ()  # 401 follows from the scope


def json(content: object, status: int = 200) -> Response:
    """A JSON response that must not be cached."""
    headers = {"cache-control": "no-store"}
    return Response(msgspec.json.encode(content), status, headers, "application/json")


def error(message: str, status: int) -> Response:
    response = json(Problem(message), status)
    if status == 401:
        response.headers["www-authenticate"] = "Bearer"
    return response


def require_scope(scope: str | None, handler: Handler, turns: Turns | None = None) -> Handler:
    """Let only callers with this scope in, in turns, and turn CountlessError into a JSON response."""

    async def guarded(request: Request) -> Response:
        access = request.app.state.access
        grant = NOTHING if scope is None else access.authenticate(request)
        if scope is not None and not grant.allows(scope):
            request.app.state.server.dropped["not allowed"] += 1
            return error(f"a token of scope {scope} is needed", 401)
        if scope is not None and turns is not None:
            await turns.wait(peer_of(request, grant))
        try:
            return until_revoked(await handler(request), access, grant)
        except StoreError as problem:  # what was wanted is done, and is saved as soon as that is possible
            return error(str(problem), 503)
        except CountlessError as problem:
            if isinstance(problem, UnknownName) and problem.value in request.path_params.values():
                return error(f"there is no {problem.parameter} {problem.value!r}{problem.hint}", 404)
            return error(str(problem), 400)

    return guarded


# The routes


class NameConvertor(PathConvertor):
    """The rest of the path, line breaks included, which starlette's `path` does not match."""

    regex = "(?s:.*)"


register_url_convertor("name", NameConvertor())


def routes_of(operations: Iterable[Operation]) -> list[Route]:
    """One route for each path, so that a 405 lists all methods of the path."""
    paths: dict[str, dict[str, Handler]] = {}
    turns = Turns()
    for each in operations:
        paths.setdefault(each.path, {})[each.method] = require_scope(each.scope, each.handler, turns)
    return [
        Route(path.replace("}", ":name}"), _by_method(handlers), methods=list(handlers))
        for path, handlers in paths.items()
    ]


def _by_method(handlers: dict[str, Handler]) -> Handler:
    async def choose(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return choose


# The document


def openapi(operations: Iterable[Operation]) -> dict[str, Any]:
    """The OpenAPI 3.1 document. Summaries and descriptions are the docstrings of the handlers."""
    operations = tuple(operations)
    given = (struct for each in operations for struct in (each.body, *_structs(each.response)) if struct is not None)
    structs = dict.fromkeys(given)  # in the same order each time
    _, components = msgspec.json.schema_components([*structs, Problem], ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _describe(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Countless",
            "version": __version__,
            "description": "A global count over many machines, with bounds on its error.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "From `countless token create`. A coordinator that was started with `--open` asks "
                    "programs on its machine for none.",
                }
            },
        },
    }


def _describe(each: Operation) -> dict[str, Any]:
    summary, _, rest = (getdoc(each.handler) or "").partition("\n")
    about: dict[str, Any] = {
        "operationId": each.handler.__name__,
        "summary": summary,
        "description": f"{rest.strip()}\n\nFor scope `{each.scope or 'none'}`.".strip(),
        "responses": {str(each.status): _response(summary, each.response)},
    }
    if each.scope:
        about["security"] = [{"token": []}]
    changes = each.method != "GET"  # which has to be saved
    for status in (*((401,) if each.scope else ()), *each.error_statuses, *((503,) if changes else ())):
        struct = each.response if status == 503 and not changes else Problem  # says what is not ready
        text = "The change is made, and cannot be saved at present." if changes and status == 503 else _ERRORS[status]
        about["responses"][str(status)] = _response(text, struct)
    parameters = [_path_parameter(part[1:-1]) for part in each.path.split("/") if part.startswith("{")]
    parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in each.query.items()]
    if parameters:
        about["parameters"] = parameters
    if each.body is not None:
        about["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(each.body)}}}
    return about


_ERRORS = {
    400: "The request is invalid. Nothing was changed.",
    401: "A token with the scope of this operation is needed.",
    404: "There is no counter, site or budget with this name.",
    409: "There is a counter or budget with this name already.",
    503: "Not ready.",
}


def _structs(response: type | tuple[type, ...] | str | None) -> tuple[type, ...]:
    return response if isinstance(response, tuple) else (response,) if isinstance(response, type) else ()


def _response(description: str, response: type | tuple[type, ...] | str | None) -> dict[str, Any]:
    if response is None:
        return {"description": description}
    if isinstance(response, str):
        kind = "object" if response == "application/json" else "string"
        return {"description": description, "content": {response: {"schema": {"type": kind}}}}
    references = [_ref(struct) for struct in _structs(response)]
    schema: dict[str, Any] = references[0] if len(references) == 1 else {"anyOf": references}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _path_parameter(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": "Percent-encoded; slashes may also be written as they are.",
        "schema": {"type": "string", "minLength": 1},
    }


def _ref(struct: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{struct.__name__}"}
