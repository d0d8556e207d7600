"""`countless budget`: the budgets of a coordinator."""

import json
from collections.abc import Iterator
from time import sleep
from typing import Annotated, Any
from urllib.parse import quote

import typer

from countless.cli.numbers import number_of_units, share
from countless.cli.options import DEFAULT_URL, Json, Token, Url
from countless.client.api import ApiClient
from countless.errors import InvalidParameter, UnknownName

EXAMPLE = "Example:  countless budget create acme/tokens --limit 50M --per month --tz Europe/Berlin --slack 1%"
ACTIONS = ("create", "get", "list", "set", "reset", "watch", "delete")
WATCH_S = 1.0
_PATH = "/api/v1/budgets"
_METHODS = {"get": "GET", "set": "PATCH", "delete": "DELETE"}


def budget(
    action: Annotated[str, typer.Argument(help="create, get, list, set, reset, watch or delete.")],
    name: Annotated[
        str | None,
        typer.Argument(help="The budget, or a template such as 'keys/*' for all names below it."),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(help="With create and set: the units that all sites may spend together, such as 1000 or 50M."),
    ] = None,
    slack: Annotated[
        str | None,
        typer.Option(help="With create and set: the share that may be left at a refusal; 1% if not given."),
    ] = None,
    per: Annotated[
        str | None,
        typer.Option(help="With create: the limit is for each minute, hour, day or month; for ever if not given."),
    ] = None,
    rolling: Annotated[
        str | None,
        typer.Option(help="With create: at most the limit in every interval of this length, such as 1m or 24h."),
    ] = None,
    tz: Annotated[str | None, typer.Option(help="With --per: the time zone; UTC if not given.")] = None,
    anchor: Annotated[
        int | None,
        typer.Option(help="With --per: the second, minute, hour or day of month at which a period begins."),
    ] = None,
    max_names: Annotated[
        int | None,
        typer.Option(help="With a template: how many names may follow it at the same time; 10000 if not given."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="With create: spending, or in_flight for a limit on what runs at the same time."),
    ] = None,
    on_loss: Annotated[
        str | None,
        typer.Option(help="With create and set: charge or free what a site that is lost has not reported."),
    ] = None,
    on_unreachable: Annotated[
        str | None,
        typer.Option(help="With create and set: refuse, wait or overdraft, for sites without a connection."),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Create, read, change, reset or delete budgets. Changes need a token of scope operator, if there are tokens.

    reset starts the present period again; watch prints the budget whenever it has changed.
    """
    if action not in ACTIONS:
        raise UnknownName("action", action, ACTIONS)
    if (name is None) is not (action == "list"):
        raise InvalidParameter("name", name, "given with every action but list")
    fields = {"per": per, "rolling": rolling, "tz": tz, "anchor": anchor, "kind": kind}
    fields |= {"on_loss": on_loss, "on_unreachable": on_unreachable, "max_names": max_names}
    rule = {key: value for key, value in (_amounts(limit, slack) | fields).items() if value is not None}
    if rule and action not in ("create", "set"):
        raise InvalidParameter(next(iter(rule)), next(iter(rule.values())), "given with create and set only")
    if (action == "set" and not rule) or (action == "create" and limit is None):
        raise InvalidParameter("limit", None, f"given with {action}")
    api = ApiClient(url, token)
    for result in _watch(api, name or "") if action == "watch" else [_request(api, action, name or "", rule)]:
        _print(result, as_json)


def _amounts(limit: str | None, slack: str | None) -> dict[str, object]:
    return {
        "limit": None if limit is None else number_of_units("limit", limit),
        "slack": None if slack is None else share("slack", slack),
    }


def _request(api: ApiClient, action: str, name: str, rule: dict[str, Any]) -> Any:
    path = f"{_PATH}/{quote(name)}"
    if action == "create":
        return api.request("POST", _PATH, {"name": name, **rule})
    if action == "list":
        return list(api.budgets())
    if action == "reset":
        return api.request("POST", f"{path}/reset")
    return api.request(_METHODS[action], path, rule if action == "set" else None)


def _watch(api: ApiClient, name: str) -> Iterator[Any]:
    last = None
    while True:
        status = api.request("GET", f"{_PATH}/{quote(name)}")
        if status != last:
            yield status
            last = status
        sleep(WATCH_S)


def _print(result: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result), flush=True)
        return
    if result == []:
        print("no budgets: `countless budget create NAME --limit N` makes one")
    for each in result if isinstance(result, list) else [result] if result else []:
        print(_text(each), flush=True)


def _text(status: dict[str, Any]) -> str:
    rolling = status["rolling"]
    period = f" per {status['per']}" if status["per"] else f" in every {rolling:g} s" if rolling else ""
    if status["max_names"] is not None:
        names = f"{status['names']:,} of at most {status['max_names']:,} names in use"
        return f"{status['name']}: {status['limit']:,}{period} for each name ({names})"
    used = "in use" if status["kind"] == "in_flight" else "taken" if rolling else "spent"
    resets = f"; resets at {status['resets_at']}" if status["resets_at"] else ""
    return (
        f"{status['name']}: {status['used_lower']:,} to {status['used_upper']:,} of {status['limit']:,}{period} {used} "
        f"({status['leaked']:,} leaked; {status['state']}{resets})"
    )
