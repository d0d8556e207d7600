"""The HTTP API, from the table of operations that routes and OpenAPI document come from."""

import inspect

from countless.server.http.budget_routes import BUDGET_OPERATIONS
from countless.server.http.monitoring.probes import PROBES
from countless.server.http.routes import OPERATIONS

HEAD = """# HTTP API

*Written by `python -m tools.reference` from the table of operations.*

`GET /api/v1/openapi.json` is the OpenAPI 3.1 document with every field. A token is sent in the
header `Authorization: Bearer TOKEN`; its [scope](../service.md#tokens-and-tls) says what it allows.
[Errors](errors.md#errors-of-the-api) are JSON.

| request | scope | |
|---|---|---|
"""


def page() -> str:
    rows = []
    for each in (*OPERATIONS, *BUDGET_OPERATIONS, *PROBES):
        query = "".join(f"?{name}=..." for name in each.query)
        words = (inspect.getdoc(each.handler) or "").partition("\n")[0]
        rows.append(f"| `{each.method} {each.path}{query}` | {each.scope or 'none'} | {words} |")
    return HEAD + "\n".join(rows) + "\n"
