"""Limits of single views of Flask; `countless.wsgi.LimitRequests` limits a whole application.

answer_refusals(app)

@app.get("/exports/<tenant>")
@countless.limited("exports/{tenant}")
def export(tenant: str) -> str: ...
"""

from flask import Flask, Response

from countless.limiting.limit import refusal_of
from countless.limiting.responses import PROBLEMS


def answer_refusals(app: Flask) -> None:
    """Answer what `countless.limited` refuses with 429, or with 503 while the quota is unknown."""
    for kind in PROBLEMS:
        app.register_error_handler(kind, _answer)


def _answer(problem: Exception) -> Response:
    refusal = refusal_of(problem)
    return Response(refusal.body, refusal.status, refusal.headers)
