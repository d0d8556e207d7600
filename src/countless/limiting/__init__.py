"""Limits on requests and calls: what the middleware of every framework, and `countless.limited`, have in common."""
