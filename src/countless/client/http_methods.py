"""The label `method` of requests: methods come from outside, and their number must have a bound."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"})


def method_label(method: str) -> str:
    return method if method in _METHODS else "other"
