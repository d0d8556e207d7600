"""The exceptions, and what the exit codes mean."""

import inspect

from countless import errors

HEAD = """# Errors

*Written by `python -m tools.reference` from `errors.py`.*

Every exception of Countless is a `countless.errors.CountlessError`. A message names the parameter, the value and
what is allowed, and nothing has been changed.

"""
TAIL = """
## Exit codes of the command line

| code | meaning |
|---|---|
| 0 | done |
| 1 | the thing asked about is not so: a game was lost, a check failed, a total has not passed its mark |
| 2 | the request was wrong or could not be carried out; one line on standard error says why; nothing was changed |
| 130 | interrupted by Ctrl-C |

## Answers of the API

An error is `{"error": "..."}`, a line for a person, with the status 400 (what you sent), 401 (a token of the named
scope is needed), 404 (there is no such counter or site), 405, 409 (there is one already) or 503 (not ready).

## Why a site is cut off

A peer that breaks the protocol is disconnected with a WebSocket close code and a reason, and
`countless_dropped_total{reason}` counts it: 1008 (the protocol, or a limit), 1009 (a frame that is too large), 1013 (no
more connections), 1001 (no sign of life), 1011 (a bug of ours). The client says the reason in its log once and goes on
trying.
"""


def page() -> str:
    """The tree as its module draws it, then each with its own words."""
    tree = inspect.cleandoc(errors.__doc__ or "").partition("\n\n")[2]
    parts = [HEAD, "```text\n", inspect.cleandoc(tree.partition(":\n\n")[2]), "\n```\n\n"]
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, errors.CountlessError):
            parts.append(f"- `{name}`: {inspect.getdoc(kind)}\n")
    return "".join(parts) + TAIL
