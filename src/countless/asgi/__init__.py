"""ASGI middleware: `CountRequests` counts requests, `LimitRequests` admits them while a budget lasts."""

from countless.asgi.count_requests import CountRequests
from countless.asgi.limit_requests import LimitRequests, header_key

__all__ = ["CountRequests", "LimitRequests", "header_key"]
