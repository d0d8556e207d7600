"""The HTTP API, from the table that the routes and the OpenAPI document are made of."""

import inspect

from countless.server.http.probes import PROBES
from countless.server.http.routes import OPERATIONS

HEAD = """# HTTP API

*Written by `python -m tools.reference` from the table of operations.*

`GET /api/v1/openapi.json` is the whole of it in OpenAPI 3.1, with every field. A token goes into the header
`Authorization: Bearer TOKEN`. [Who may see what](../service.md#who-may-see-what);
[what errors look like](errors.md#answers-of-the-api).

| request | scope | |
|---|---|---|
"""


def page() -> str:
    """One row for each operation, in the words of its handler."""
    rows = []
    for each in (*OPERATIONS, *PROBES):
        query = "".join(f"?{name}=..." for name in each.query)
        words = (inspect.getdoc(each.handler) or "").partition("\n")[0]
        rows.append(f"| `{each.method} {each.path}{query}` | {each.scope or 'anybody'} | {words} |")
    return HEAD + "\n".join(rows) + "\n"
