"""Exceptions, exit codes, errors of the API, close codes of site connections."""

import inspect

from countless import errors

HEAD = """# Errors

*Written by `python -m tools.reference` from `errors.py`.*

Every exception of Countless is a `countless.errors.CountlessError`. A message names the parameter,
the value and what is allowed. A call that raises has changed nothing.

"""
TAIL = """
## Exit codes of the command line

| code | meaning |
|---|---|
| 0 | done |
| 1 | the answer is no: a game was lost, a check failed, a total has not passed its threshold |
| 2 | the request was invalid or could not be carried out; a line on standard error says why; nothing was changed |
| 75 | `countless take`: no answer in time |
| 130 | interrupted by Ctrl-C |

## Errors of the API

The body of an error is `{"error": "..."}`, one line of text.

| status | meaning |
|---|---|
| 400 | the request is invalid; nothing was changed |
| 401 | a token of the named scope is needed |
| 404 | there is no such path, counter, site or budget |
| 405 | the path does not have this method |
| 409 | there is a counter or budget with this name already |
| 503 | the coordinator is not ready, or no coordinator of a cluster owns the counter at present |

## Close codes of site connections

The coordinator closes a connection with a WebSocket close code and a reason, and counts it in
`countless_dropped_total{reason}`. The client logs the reason once and reconnects.

| code | meaning |
|---|---|
| 1001 | the site timed out |
| 1008 | the site violated the protocol or a limit |
| 1009 | a frame was too large |
| 1011 | a bug in the coordinator |
| 1013 | there are `max_connections` connections already |
"""


def page() -> str:
    tree = inspect.cleandoc(errors.__doc__ or "").partition("\n\n")[2]
    return f"{HEAD}```text\n{inspect.cleandoc(tree)}\n```\n{TAIL}"
