"""`countless counter`: create, configure and delete counters."""

import json
from typing import Annotated
from urllib.parse import quote

import typer

from countless.cli.numbers import number_of_units, share
from countless.cli.options import DEFAULT_URL, Json, Token, Url
from countless.client.answers import parse_total
from countless.client.api import ApiClient
from countless.errors import InvalidParameter, UnknownName

EXAMPLE = "Example:  countless counter create requests --per hour --tz Europe/Berlin"
ACTIONS = ("create", "set", "delete")
_PATH = "/api/v1/counters"


def counter(
    action: Annotated[str, typer.Argument(help="create, set or delete.")],
    name: Annotated[str, typer.Argument(help="The counter.")],
    per: Annotated[
        str | None,
        typer.Option(help="With create: a window for each minute, hour, day or month; without it, no windows."),
    ] = None,
    tz: Annotated[str | None, typer.Option(help="With --per: the time zone; UTC if not given.")] = None,
    anchor: Annotated[
        int | None,
        typer.Option(help="With --per: the second, minute, hour or day of month at which a window begins."),
    ] = None,
    floor: Annotated[
        str | None,
        typer.Option(
            help="The error of a window is at most alpha * max(count, floor): 1000, 50k ... or auto, a third of the "
            "last window. A larger floor saves messages."
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="How many closed windows are kept; auto: 1440 minutes, 744 hours, 400 days, 60 months; of a family "
            "120 minutes, 72 hours, 62 days, 24 months."
        ),
    ] = None,
    alpha: Annotated[str | None, typer.Option(help="The largest relative error, such as 1%.")] = None,
    delta: Annotated[str | None, typer.Option(help="The largest probability of a larger error, such as 5%.")] = None,
    scheme: Annotated[str | None, typer.Option(help="The algorithm that decides when sites report.")] = None,
    adversary: Annotated[str | None, typer.Option(help="The most that the counted traffic may react to.")] = None,
    label_cap: Annotated[int | None, typer.Option(help="How many labelled series it may have.")] = None,
    family: Annotated[
        bool,
        typer.Option("--family", help="With create: each label is known to within --epsilon of the total of all."),
    ] = False,
    epsilon: Annotated[str | None, typer.Option(help="With --family: 1% if not given.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Create, configure or delete a counter. It needs a token of scope operator, if there are tokens.

    A counter need not be created: the first program that counts it does that, with the coordinator's defaults.
    """
    if action not in ACTIONS:
        raise UnknownName("action", action, ACTIONS)
    given = {
        "per": per,
        "tz": tz,
        "anchor": anchor,
        "scheme": scheme,
        "adversary": adversary,
        "label_cap": label_cap,
        "family": family or None,
        "epsilon": None if epsilon is None else share("epsilon", epsilon),
        "alpha": None if alpha is None else share("alpha", alpha),
        "delta": None if delta is None else share("delta", delta),
    }
    rules: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    rules |= {key: _units(key, text) for key, text in (("floor", floor), ("keep", keep)) if text is not None}
    if rules and action == "delete":
        raise InvalidParameter(next(iter(rules)), next(iter(rules.values())), "given with create and set only")
    for name_of_rule in ("family", "epsilon"):
        if name_of_rule in rules and action == "set":
            raise InvalidParameter(name_of_rule, rules[name_of_rule], "given with create only")
    if not rules and action == "set":
        raise InvalidParameter("options", "none", "at least one with set, such as --alpha 1% or --floor 1000")
    api = ApiClient(url, token)
    if action == "create":
        answer = api.request("POST", _PATH, {"name": name, **rules})
    else:
        method, body = ("DELETE", None) if action == "delete" else ("PATCH", rules)
        answer = api.request(method, f"{_PATH}/{quote(name)}", body)
    if as_json:
        print(json.dumps(answer))
    elif answer:
        print(parse_total(answer))


def _units(parameter: str, text: str) -> int | None:
    return None if text == "auto" else number_of_units(parameter, text)
