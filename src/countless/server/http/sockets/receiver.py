"""The ASGI extension by which the fast path hands payloads to the application without a queue."""

from collections.abc import Callable

Receiver = Callable[[bytes], float]  # takes a payload; returns for how many seconds nothing more is to be read
RECEIVER = "countless.receiver"  # in scope["extensions"]: a function that takes the Receiver, or None at the end
ERROR = "countless.error"  # in a `websocket.receive` event: what the receiver raised
