"""The ASGI extension by which the fast path hands payloads to the application without a queue."""

from collections.abc import Callable

Receiver = Callable[[bytes], float]  # takes a payload; returns for how many seconds nothing more is to be read
RECEIVER = "countless.receiver"  # in scope["extensions"]: a function that takes the Receiver, or None at the end
# In scope["extensions"]: a function that takes a Hold. What a connection holds, of messages that are incomplete or not
# read yet, is told to it as it changes; if it returns False, the connection is closed.
Hold = Callable[[int], bool]
HOLD = "countless.hold"
ERROR = "countless.error"  # in a `websocket.receive` event: what the receiver raised
