"""Limits of single routes of Litestar; `countless.asgi.LimitRequests` limits a whole application.

app = Litestar([export], on_app_init=[answer_refusals])
"""

from typing import Any

from litestar import Request, Response
from litestar.config.app import AppConfig

from countless.limiting.limit import refusal_of
from countless.limiting.responses import PROBLEMS


def answer_refusals(config: AppConfig) -> AppConfig:
    """Answer what `countless.limited` refuses with 429, or with 503 while the quota is unknown."""
    config.exception_handlers.update(dict.fromkeys(PROBLEMS, _answer))
    return config


def _answer(request: Request[Any, Any, Any], problem: Exception) -> Response[bytes]:
    refusal = refusal_of(problem)
    return Response(refusal.body, status_code=refusal.status, headers=dict(refusal.headers))
