"""`countless budget`: the budgets of a coordinator."""

import json
from typing import Annotated, Any
from urllib.parse import quote

import typer

from countless.cli.options import DEFAULT_URL, Json, Token, Url
from countless.client.api import ApiClient
from countless.errors import InvalidParameter

EXAMPLE = "Example:  countless budget create acme/tokens --limit 1000000 --slack 0.01"
ACTIONS = ("create", "get", "list", "set", "delete")
_PATH = "/api/v1/budgets"


def budget(
    action: Annotated[str, typer.Argument(help="create, get, list, set or delete.")],
    name: Annotated[str | None, typer.Argument(help="The budget; not with list.")] = None,
    limit: Annotated[
        int | None, typer.Option(help="With create and set: the units that all sites may spend together.")
    ] = None,
    slack: Annotated[
        float | None,
        typer.Option(help="With create and set: the share that may be left at a refusal; 0.01 if not given."),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Create, read, change or delete budgets. Changes need a token of scope operator, if there are tokens."""
    if action not in ACTIONS:
        raise InvalidParameter("action", action, f"one of: {', '.join(ACTIONS)}")
    if (name is None) is not (action == "list"):
        raise InvalidParameter("name", name, "given with every action but list")
    rule = {key: value for key, value in (("limit", limit), ("slack", slack)) if value is not None}
    if rule and action not in ("create", "set"):
        raise InvalidParameter(next(iter(rule)), next(iter(rule.values())), "given with create and set only")
    if (action == "set" and not rule) or (action == "create" and limit is None):
        raise InvalidParameter("limit", None, f"given with {action}")
    _print(_request(ApiClient(url, token), action, name or "", rule), as_json)


def _request(api: ApiClient, action: str, name: str, rule: dict[str, Any]) -> Any:
    path = f"{_PATH}/{quote(name)}"
    if action == "create":
        return api.request("POST", _PATH, {"name": name, **rule})
    if action == "list":
        return api.request("GET", _PATH)["budgets"]
    method = {"get": "GET", "set": "PATCH", "delete": "DELETE"}[action]
    return api.request(method, path, rule if action == "set" else None)


def _print(result: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
        return
    for each in result if isinstance(result, list) else [result] if result else []:
        print(
            f"{each['name']}: {each['used_lower']:,} to {each['used_upper']:,} of {each['limit']:,} spent "
            f"({each['leaked']:,} leaked; {each['state']})"
        )
