"""The server's side of one open connection to a site. A WebSocket and a NATS stream are its implementations."""

from typing import Protocol

from countless.wire.frames import DownItem

ITEMS_PER_WRITE = 1000  # of one connection; then the loop does other work


class Connection(Protocol):
    def send(self, items: list[DownItem]) -> None:
        """Queue items. Does not block; after `close` nothing is sent."""

    def close(self, code: int, reason: str) -> None:
        """Close with a WebSocket close code once everything queued was sent."""
