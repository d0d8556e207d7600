"""Create, read, change and delete budgets.

Changes need a token of scope operator, if there are tokens.
"""

import json
from collections.abc import Iterator
from time import sleep
from typing import Annotated, Any
from urllib.parse import quote

import typer

from countless.cli.coordinator import coordinator
from countless.cli.numbers import number_of_units, share
from countless.cli.options import DEFAULT_URL, Json, Token, Url
from countless.client.api import ApiClient
from countless.core.parameters import require_unit

WATCH_S = 1.0
_PATH = "/api/v1/budgets"
app = typer.Typer(help=__doc__)

Name = Annotated[str, typer.Argument(help="The budget.")]
Slack = Annotated[str | None, typer.Option(help="Leave at most this share unused at a refusal.")]
OnLoss = Annotated[str | None, typer.Option(help="Charge or free units that a lost site didn't report.")]
OnUnreachable = Annotated[str | None, typer.Option(help="Refuse, wait or overdraft at sites without a connection.")]
MaxNames = Annotated[int | None, typer.Option(help="With a rule: let at most this many names follow it.")]


@app.command(
    epilog="Example:  countless budget create acme/tokens --limit 50M --per month --tz Europe/Berlin --slack 1%"
)
def create(
    name: Annotated[str, typer.Argument(help="The budget, or a rule for all names below: 'keys/*'.")],
    limit: Annotated[str, typer.Option(help="Allow this many units over all sites, such as 1000 or 50M.")],
    per: Annotated[str | None, typer.Option(help="Renew the limit each minute, hour, day or month.")] = None,
    rolling: Annotated[
        str | None, typer.Option(help="Hold the limit in every interval of this length: 1m, 24h ...")
    ] = None,
    tz: Annotated[str | None, typer.Option(help="With --per: use this time zone, UTC by default.")] = None,
    anchor: Annotated[
        int | None, typer.Option(help="With --per: begin at this second, minute, hour or day of month.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Limit spending, or, with in_flight, what runs at the same time.")
    ] = None,
    slack: Annotated[
        str | None, typer.Option(help="Leave at most this share unused at a refusal.", show_default="1%")
    ] = None,
    on_loss: OnLoss = None,
    on_unreachable: OnUnreachable = None,
    max_names: Annotated[
        int | None, typer.Option(help="With a rule: let at most this many names follow it.", show_default="10000")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Create a budget, or a rule for many: a limit that all sites share.

    Without --per and --rolling, the limit is for all time.
    """
    if rolling is not None:
        require_unit("rolling", rolling)
    period = {"per": per, "rolling": rolling, "tz": tz, "anchor": anchor, "kind": kind}
    rule = _given(_changes(limit, slack, on_loss, on_unreachable, max_names) | period)
    _print(coordinator(url, token).request("POST", _PATH, {"name": name, **rule}), as_json)


@app.command("list", epilog="Example:  countless budget list --json")
def list_(url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False) -> None:
    """List all budgets and how much of each is used."""
    budgets = list(coordinator(url, token).budgets())
    if as_json:
        print(json.dumps(budgets))
        return
    if not budgets:
        print("no budgets: `countless budget create NAME --limit N` makes one")
    for each in budgets:
        _print(each, as_json)


@app.command(epilog="Example:  countless budget get acme/tokens")
def get(name: Name, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False) -> None:
    """Read how much of a budget is used."""
    _print(coordinator(url, token).request("GET", _path(name)), as_json)


@app.command("set", epilog="Example:  countless budget set acme/tokens --limit 60M")
def set_(
    name: Name,
    limit: Annotated[str | None, typer.Option(help="Allow this many units, such as 1000 or 50M.")] = None,
    slack: Slack = None,
    on_loss: OnLoss = None,
    on_unreachable: OnUnreachable = None,
    max_names: MaxNames = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Change the limit of a budget, or its other settings."""
    rule = _given(_changes(limit, slack, on_loss, on_unreachable, max_names))
    if not rule:
        raise typer.TyperException("nothing to change: give --limit, --slack or another option")
    _print(coordinator(url, token).request("PATCH", _path(name), rule), as_json)


@app.command(epilog="Example:  countless budget reset acme/tokens")
def reset(name: Name, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False) -> None:
    """Start the current period of a budget again, with the whole limit."""
    _print(coordinator(url, token).request("POST", f"{_path(name)}/reset"), as_json)


@app.command(epilog="Example:  countless budget watch acme/tokens")
def watch(name: Name, url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False) -> None:
    """Print a budget now and whenever it changes."""
    for status in _changing(coordinator(url, token), name):
        _print(status, as_json)


@app.command(epilog="Example:  countless budget delete acme/tokens")
def delete(name: Name, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Delete a budget."""
    coordinator(url, token).request("DELETE", _path(name))


def _path(name: str) -> str:
    return f"{_PATH}/{quote(name)}"


def _changes(
    limit: str | None, slack: str | None, on_loss: str | None, on_unreachable: str | None, max_names: int | None
) -> dict[str, object]:
    return {
        "limit": None if limit is None else number_of_units("limit", limit),
        "slack": None if slack is None else share("slack", slack),
        "on_loss": on_loss,
        "on_unreachable": on_unreachable,
        "max_names": max_names,
    }


def _given(rule: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in rule.items() if value is not None}


def _changing(api: ApiClient, name: str) -> Iterator[dict[str, Any]]:
    last = None
    while True:
        status = api.request("GET", _path(name))
        if status != last:
            yield status
            last = status
        sleep(WATCH_S)


def _print(status: dict[str, Any], as_json: bool) -> None:
    print(json.dumps(status) if as_json else _text(status), flush=True)


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
