"""Warnings about what the coordinator rejects: not one for each of thousands of names, with every connection again."""

import logging
from collections import Counter

log = logging.getLogger("countless")

MAX_WARNINGS = 10  # for one reason
MAX_REASONS = 1_000  # that are counted


class RejectionLog:
    """
    >>> from unittest.mock import patch
    >>> rejections = RejectionLog("counter")
    >>> with patch.object(log, "warning") as warning:
    ...     for number in range(9000): rejections.warn(f"k{number}", "there are too many")
    >>> warning.call_count, warning.call_args.args[0]
    (10, 'rejected by the coordinator: %s=%r reason=%s (more are not listed)')
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._warned = Counter[str]()  # by reason

    def warn(self, name: str, reason: str) -> None:
        if len(self._warned) >= MAX_REASONS:
            self._warned.clear()
        self._warned[reason] += 1
        if self._warned[reason] < MAX_WARNINGS:
            log.warning("rejected by the coordinator: %s=%r reason=%s", self._kind, name, reason)
        elif self._warned[reason] == MAX_WARNINGS:
            log.warning("rejected by the coordinator: %s=%r reason=%s (more are not listed)", self._kind, name, reason)
