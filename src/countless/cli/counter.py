"""Create, list, configure and delete counters.

Changes need a token of scope operator, if there are tokens.
"""

import json
from typing import Annotated, Any
from urllib.parse import quote

import typer

from countless.cli.coordinator import coordinator
from countless.cli.numbers import number_of_units, share
from countless.cli.options import DEFAULT_URL, Anchor, Json, Per, Token, Tz, Url
from countless.client.answers import parse_total

_PATH = "/api/v1/counters"
app = typer.Typer(help=__doc__)

Name = Annotated[str, typer.Argument(help="The counter.")]
Floor = Annotated[str | None, typer.Option(help="Allow small windows the error of one with this count, or auto.")]
Keep = Annotated[str | None, typer.Option(help="Keep this many closed windows, or auto.")]
Alpha = Annotated[str | None, typer.Option(help="Allow this relative error, such as 1%.")]
Delta = Annotated[str | None, typer.Option(help="Allow a larger error with this probability, such as 5%.")]
Scheme = Annotated[str | None, typer.Option(help="Let this algorithm decide when sites report.")]
Adversary = Annotated[
    str | None, typer.Option(help="Withstand traffic like this: adaptive, oblivious, sees-everything.")
]
LabelCap = Annotated[int | None, typer.Option(help="Allow this many labelled series.")]


@app.command(epilog="Example:  countless counter create requests --per hour --tz Europe/Berlin")
def create(
    name: Name,
    per: Per = None,
    tz: Tz = None,
    anchor: Anchor = None,
    floor: Floor = None,
    keep: Keep = None,
    alpha: Alpha = None,
    delta: Delta = None,
    scheme: Scheme = None,
    adversary: Adversary = None,
    label_cap: LabelCap = None,
    family: Annotated[
        bool, typer.Option("--family", help="Know each label to within --epsilon of the total of all.")
    ] = False,
    epsilon: Annotated[str | None, typer.Option(help="With --family: allow a label this error, 1% by default.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Create a counter with settings of its own.

    A counter need not be created: the first program that counts it creates
    it, with the coordinator's defaults. The error of a window is at most
    alpha * max(count, floor); auto is a third of the last window.
    """
    rule = _rule(
        per=per, tz=tz, anchor=anchor, floor=floor, keep=keep, alpha=alpha, delta=delta, scheme=scheme,
        adversary=adversary, label_cap=label_cap, family=family or None, epsilon=epsilon,
    )  # fmt: skip
    _print(coordinator(url, token).request("POST", _PATH, {"name": name, **rule}), as_json)


@app.command("list", epilog="Example:  countless counter list --json")
def list_(url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False) -> None:
    """List all counters with their totals."""
    answers = list(coordinator(url, token).counters())
    if as_json:
        print(json.dumps(answers))
        return
    if not answers:
        print("no counters: nothing was counted yet")
    for answer in answers:
        _print(answer, as_json)


@app.command("set", epilog="Example:  countless counter set requests --keep 100")
def set_(
    name: Name,
    per: Per = None,
    tz: Tz = None,
    anchor: Anchor = None,
    floor: Floor = None,
    keep: Keep = None,
    alpha: Alpha = None,
    delta: Delta = None,
    scheme: Scheme = None,
    adversary: Adversary = None,
    label_cap: LabelCap = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Change the settings of a counter."""
    rule = _rule(
        per=per, tz=tz, anchor=anchor, floor=floor, keep=keep, alpha=alpha, delta=delta, scheme=scheme,
        adversary=adversary, label_cap=label_cap,
    )  # fmt: skip
    if not rule:
        raise typer.TyperException("nothing to change: give --alpha, --keep or another option")
    _print(coordinator(url, token).request("PATCH", f"{_PATH}/{quote(name)}", rule), as_json)


@app.command(epilog="Example:  countless counter delete requests")
def delete(name: Name, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Delete a counter and all it has counted."""
    coordinator(url, token).request("DELETE", f"{_PATH}/{quote(name)}")


def _rule(**given: Any) -> dict[str, object]:
    """The options that were given, with amounts and shares as numbers."""
    parse = {"floor": _units, "keep": _units, "alpha": share, "delta": share, "epsilon": share}
    return {key: parse[key](key, value) if key in parse else value for key, value in given.items() if value is not None}


def _units(parameter: str, text: str) -> int | None:
    return None if text == "auto" else number_of_units(parameter, text)


def _print(answer: dict[str, Any], as_json: bool) -> None:
    print(json.dumps(answer) if as_json else parse_total(answer))
