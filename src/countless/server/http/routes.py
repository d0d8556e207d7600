"""The JSON API under `/api/v1`: handlers, and the table of operations that routes and OpenAPI document come from.

The read scope gets estimate, lower, upper, state and the time of reading, and nothing finer: a reader who learns when
or how often sites report could steer the error (docs/understand/threat-model.md).
"""

import re
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from countless.core.parameters import require_duration
from countless.errors import InvalidParameter
from countless.server.http.answers.labels import distribution_named, quantile_answer
from countless.server.http.answers.operator_view import operator_answer, operator_sum
from countless.server.http.answers.published import event_stream, parse_threshold, public_view
from countless.server.http.answers.sums import (
    answer_changes,
    parse_share,
    parts_of,
    reading,
    summed,
    top_of,
)
from countless.server.http.answers.windows import window_list
from countless.server.http.api.openapi import Operation, error, json
from countless.server.http.api.schemas import (
    AnswerPage,
    DropResult,
    NewCounter,
    OperatorAnswer,
    PublicAnswer,
    QuantileAnswer,
    Rules,
    SiteList,
    SiteStatus,
    TopAnswer,
)
from countless.server.http.api.window_schemas import RollingAnswer, WindowAnswer, WindowList
from countless.server.site_server import SiteServer

MAX_BODY_BYTES = 1 << 16
MAX_LISTED = 1000
_Body = TypeVar("_Body", bound=msgspec.Struct)
_WRONG_FIELD = re.compile(r"Expected `(?P<types>[^`]+)`, got `\w+` - at `\$\.(?P<field>\w+)`")  # of msgspec
_JSON_TYPES = {"float": "a number such as 0.01", "int": "an integer", "str": "text", "bool": "true or false"}


def server_of(request: Request) -> SiteServer:
    server: SiteServer = request.app.state.server
    return server


async def read_body(request: Request, kind: type[_Body]) -> _Body:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise InvalidParameter("body", f"{len(body)} bytes", f"at most {MAX_BODY_BYTES} bytes")
    try:
        return msgspec.json.decode(bytes(body) or b"{}", type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as problem:
        if wrong := _WRONG_FIELD.fullmatch(str(problem)):
            value = msgspec.json.decode(bytes(body))[wrong["field"]]
            allowed = " or ".join(_JSON_TYPES.get(kind, kind) for kind in wrong["types"].split(" | "))
            raise InvalidParameter(wrong["field"], value, allowed) from None
        raise InvalidParameter("body", bytes(body[:80]), f"a JSON object of the documented form ({problem})") from None


async def list_counters(request: Request) -> Response:
    """All counters, and families, in the order of their names, 1,000 at a time."""
    after = request.query_params.get("after", "")
    server = server_of(request)
    names = sorted(name for name in server.names if name > after)
    page = [summed(name, [public_view(part) for part in parts_of(server, name)]) for name in names[:MAX_LISTED]]
    return json(AnswerPage(page, names[MAX_LISTED - 1] if len(names) > MAX_LISTED else None))


async def create_counter(request: Request) -> Response:
    """Create a counter with a configuration of its own, or a family, before any site counts it."""
    rules, server = await read_body(request, NewCounter), server_of(request)
    if rules.name in server.by_name:
        return error(f"there is a counter {rules.name!r} already", 409)
    server.create(rules.name, rules.spec(server.settings.defaults))
    await server.require_saved()
    created = server.by_name[rules.name]
    answer = public_view(created) if created.rounds is None else operator_answer(created.rounds)
    return json(answer, 201)


async def read_counter(request: Request) -> Response:
    """The answer of one counter: its total, the count of a window, or the count and rate of the last `15m`, say.

    A counter is the sum of its labelled series and of its events without labels; its bounds are the sums of theirs.

    `window` is for counters with windows: now, last, this-hour, last-day ..., today, yesterday, a date, or a time for
    the window that contains it; by the clock of the coordinator, in the time zone of the counter.

    `rolling` is for every counter: 15m, 1h, 7d ... Its bounds are narrow if answers were recorded when the span began:
    every second, for the last minutes; less often before. Records do not outlive a restart; closed windows do.
    """
    name, query = request.path_params["name"], request.query_params
    read = reading(request.app.state.recorder, query.get("window"), query.get("rolling"))
    return json(summed(name, [read(part) for part in parts_of(server_of(request), name)]))


async def read_top(request: Request) -> Response:
    """The labelled series of a counter that may have at least a share of its count: 0.02, or `share`.

    None that has the share is missing, if the bounds of the answers hold. With `window` or `rolling`, of that time.

    Of a family, its labels: none is missing whose share is at least the family's epsilon, unless it is beyond the cap
    on labels; those have their own row, the overflow series. `window` is for families with windows, `rolling` for none.
    If more than 10,000 labels may have the share, it is refused: ask for a larger one.
    """
    name, query = request.path_params["name"], request.query_params
    share = parse_share(query.get("share", "0.02"))
    read = reading(request.app.state.recorder, query.get("window"), query.get("rolling"))
    return json(top_of(name, parts_of(server_of(request), name), share, read, query.get("window")))


async def read_quantiles(request: Request) -> Response:
    """Quantiles of a distribution: 0.5, 0.9 and 0.99, or each `q`; and the rank of each `value`.
    A rank is the number of observations that are at most as large. With `window`, of that time, if it has windows.
    """
    query, by_name = request.query_params, server_of(request).by_name
    distribution = distribution_named(by_name, request.path_params["name"])
    shares, values = query.getlist("q"), query.getlist("value")
    shares = shares or ([] if values else ["0.5", "0.9", "0.99"])
    return json(quantile_answer(distribution, shares, values, query.get("window")))


async def list_windows(request: Request) -> Response:
    """The youngest windows of a counter with windows, oldest first: 48, or `limit`; with labels, their sums."""
    server, name, limit = server_of(request), request.path_params["name"], request.query_params.get("limit", "48")
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 6 and 1 <= int(limit) <= MAX_LISTED):
        raise InvalidParameter("limit", limit[:100], f"an integer from 1 to {MAX_LISTED}")
    return json(window_list(name, parts_of(server, name), int(limit)))


async def inspect_counter(request: Request) -> Response:
    """The answer with its round, sites and messages; with labels, the sums of all series."""
    return json(operator_sum(server_of(request), request.path_params["name"]))


async def configure_counter(request: Request) -> Response:
    """Change the configuration of a counter and its series; of a family, its windows."""
    server, name, rules = server_of(request), request.path_params["name"], await read_body(request, Rules)
    server.configure(name, rules.applied_to(server.spec_of(name)))
    await server.require_saved()
    found = server.by_name.get(name)  # None: it has labelled series only
    return json(operator_sum(server, name) if found is None or found.rounds is not None else public_view(found))


async def delete_counter(request: Request) -> Response:
    """Delete a counter with its series, or a family. Connected sites start again from zero."""
    server_of(request).delete(request.path_params["name"])
    await server_of(request).require_saved()
    return Response(status_code=204)


async def watch_counter(request: Request) -> Response:
    """Server-sent events: the answer now and after every change.

    With `over`, also an event `possibly` when the upper bound exceeds this number, and `certainly` when the
    lower one does.
    """
    server, name = server_of(request), request.path_params["name"]
    parts_of(server, name)
    return event_stream(request, answer_changes(server, name), parse_threshold(request.query_params.get("over")))


async def list_sites(request: Request) -> Response:
    """Every incarnation of every site that has a session."""
    server, now = server_of(request), server_of(request).now()
    sites = [
        SiteStatus(
            site=str(session.site_id.site),
            state=session.state,
            counters=server.counted(session),
            seconds_since_heard=max(0.0, round(now - session.last_seen, 3)),
        )
        for session in server.sessions
    ]
    return json(SiteList(sorted(sites, key=lambda status: status.site)))


async def forget_site(request: Request) -> Response:
    """Drop the incarnations of a site that are not connected. Their last known counts stay in the totals."""
    forgotten = server_of(request).drop_site(request.path_params["site"])
    await server_of(request).require_saved()
    return json(DropResult(forgotten))


async def forget_silent_sites(request: Request) -> Response:
    """Drop the incarnations that are not connected and were silent for `silent_for`, such as 30d.
    Their last known counts stay in the totals.

    A coordinator does not know for how long a site was silent before it started.
    """
    silent_for = require_duration("silent_for", request.query_params.get("silent_for"), "1s", "3650d")
    forgotten = server_of(request).drop_silent(silent_for)
    await server_of(request).require_saved()
    return json(DropResult(forgotten))


_COUNTERS, _COUNTER = "/api/v1/counters", "/api/v1/counters/{name}"
_NUMBER = {"type": "integer", "minimum": 0}

OPERATIONS = (
    Operation("GET", _COUNTERS, "read", list_counters, AnswerPage, query={"after": {"type": "string"}}),
    Operation(
        "POST",
        _COUNTERS,
        "operator",
        create_counter,
        (OperatorAnswer, PublicAnswer),
        201,
        body=NewCounter,
        error_statuses=(400, 409),
    ),
    Operation(
        "GET",
        _COUNTER,
        "read",
        read_counter,
        (PublicAnswer, WindowAnswer, RollingAnswer),
        query={
            "window": {"type": "string", "examples": ["today"]},
            "rolling": {"type": "string", "examples": ["15m"]},
        },
        error_statuses=(400, 404),
    ),
    Operation(
        "GET",
        "/api/v1/top/{name}",
        "read",
        read_top,
        TopAnswer,
        query={
            "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
            "window": {"type": "string", "examples": ["today"]},
            "rolling": {"type": "string", "examples": ["15m"]},
        },
        error_statuses=(400, 404),
    ),
    Operation(
        "GET",
        "/api/v1/quantiles/{name}",
        "read",
        read_quantiles,
        QuantileAnswer,
        query={
            "q": {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}},
            "value": {"type": "array", "items": {"type": "number", "minimum": 0}},
            "window": {"type": "string", "examples": ["today"]},
        },
        error_statuses=(400, 404),
    ),
    Operation(
        "GET",
        "/api/v1/windows/{name}",
        "read",
        list_windows,
        WindowList,
        query={"limit": {"type": "integer", "minimum": 1, "maximum": MAX_LISTED}},
        error_statuses=(400, 404),
    ),
    Operation(
        "PATCH",
        _COUNTER,
        "operator",
        configure_counter,
        (OperatorAnswer, PublicAnswer),
        body=Rules,
        error_statuses=(400, 404),
    ),
    Operation("DELETE", _COUNTER, "operator", delete_counter, None, 204, error_statuses=(404,)),
    Operation("GET", "/api/v1/operator/{name}", "operator", inspect_counter, OperatorAnswer, error_statuses=(400, 404)),
    Operation(
        "GET",
        "/api/v1/watch/{name}",
        "read",
        watch_counter,
        "text/event-stream",
        query={"over": _NUMBER},
        error_statuses=(400, 404),
    ),
    Operation("GET", "/api/v1/sites", "operator", list_sites, SiteList),
    Operation(
        "DELETE",
        "/api/v1/sites",
        "operator",
        forget_silent_sites,
        DropResult,
        query={"silent_for": {"type": "string", "examples": ["30d"]}},
        error_statuses=(400,),
    ),
    Operation("DELETE", "/api/v1/sites/{site}", "operator", forget_site, DropResult),
)
