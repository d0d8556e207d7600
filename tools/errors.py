"""Exceptions, exit codes, errors of the API, close codes of site connections."""

import re

from countless import errors

HEAD = """# Errors

This page says what each exception, exit code, status and close code means, and what to do.

*Written by `python -m tools.reference`.*

## Exceptions

All are in `countless.errors`, and a `CountlessError`. The message names the parameter, the value and what is allowed. A
call that raises has changed nothing.

| exception | raised when | what to do |
|---|---|---|
"""
WHEN_AND_REMEDY = {
    "InvalidParameter": (
        "a value is outside its range",
        "pass what the message allows; it has `parameter`, `value` and `allowed`",
    ),
    "UnknownName": ("a scheme, site or adversary does not exist", "use the name in `hint`, if there is one"),
    "AboveLimit": (
        "a request is for more units than its budget's limit",
        "ask for less, or raise the limit",
    ),
    "ProtocolError": (
        "the other side violated the protocol",
        "use the same version on both sides; test a client of your own with [vectors](repo:design/wire.md)",
    ),
    "CounterRefused": (
        "the coordinator refuses a counter, but the program keeps counting",
        "read `reasons`: raise the limit, or use the counter as it was created",
    ),
    "NoWindows": ("a window of a counter without windows is read", "count with `per`, or read `rolling`"),
    "ServiceError": (
        "a read failed: no coordinator answered, or it refused",
        "retry, unless `is_refusal`; check with `countless doctor`",
    ),
    "PlanError": ("no proved plan exists for the accuracy", "raise `alpha` or `delta`, or leave the scheme to `auto`"),
    "BudgetRefused": ("a budget did not admit a reservation", "catch it for all four below"),
    "LimitExceeded": ("not enough of the budget is left", "retry after `retry_after` seconds, or refuse the request"),
    "Starved": ("the coordinator did not answer within `wait`", "retry, or wait longer; look at its load"),
    "Unreachable": ("there is no connection to the coordinator", "[restore the connection](../operate/failures.md)"),
    "HoldExpired": ("a hold was settled after `expires_in`", "settle sooner, or give a longer one"),
    "UnknownBudget": ("the coordinator has no such budget", "`countless budget create`"),
    "InvariantBroken": ("Countless has a bug", "report it, with the seed if there is one"),
    "MissingExtra": ("an optional dependency is missing", "install the extra in the message"),
}
TAIL = """
## Exit codes of the command line

| code | meaning |
|---|---|
| 0 | done |
| 1 | the answer is no: a game was lost, a check failed, a total has not passed its threshold |
| 2 | the request was invalid or could not be carried out; nothing was changed. The line on standard error says why |
| 75 | `countless take` had no answer in time: try again later |
| 130 | interrupted by Ctrl-C |

## Errors of the API

The body is `{"error": "..."}`, one line of text.

| status | meaning | what to do |
|---|---|---|
| 400 | the request is invalid; nothing was changed | correct the field that the error names |
| 401 | a token of the named scope is needed | [make one](cli.md), or show the right one |
| 404 | there is no such path, counter, site or budget | compare the name with the list |
| 405 | the path does not have this method | see the [HTTP API](http.md) |
| 409 | there is a counter or budget with this name | change it with `PATCH` |
| 503 | the coordinator is not ready, or none of a cluster owns the counter now | retry; `/readyz` says why |

## Close codes of site connections

The coordinator closes a connection with a WebSocket close code and a reason, and counts it in
`countless_dropped_total{reason}`. The client logs the reason once and reconnects.

| code | meaning | what to do |
|---|---|---|
| 1001 | the site timed out | nothing, unless it repeats: look at network and load |
| 1008 | the site violated the protocol or a limit | read the reason in the log of the client, or in `refused.log` |
| 1009 | a frame was too large | send at most 256 kB |
| 1011 | a bug in the coordinator | report it, with its log |
| 1013 | there are `max_connections` connections | raise it, or use [agents](../guides/other-languages.md) |
"""


def page() -> str:
    """A row for each exception of the tree in `errors.py`."""
    names = re.findall(r"^[│├└─ ]+(\w+)", errors.__doc__ or "", re.MULTILINE)
    rows = []
    for name in names:
        bases = [base.__name__ for base in getattr(errors, name).__bases__ if base is not errors.CountlessError]
        kinds = f" ({', '.join(f'`{base}`' for base in bases)})" if bases else ""
        rows.append(f"| `{name}`{kinds} | {' | '.join(WHEN_AND_REMEDY[name])} |")
    return HEAD + "\n".join(rows) + "\n" + TAIL
