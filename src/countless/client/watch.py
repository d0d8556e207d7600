"""Waiting for a total to pass a mark, in the background.

    client.watch("requests", over=1_000_000, possibly=warn, certainly=stop)

Whatever happens on the way - the coordinator is away, or restarts, or has not heard of the counter - it goes on asking.
"""

import logging
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

from countless.client.api import ApiClient, ServiceError, Stream
from countless.client.session.backoff import Backoff
from countless.core.threshold import Threshold, Verdict

log = logging.getLogger("countless")

Callback = Callable[[dict[str, Any]], object]
_QUIET = 60.0  # seconds without news, after which it is asked again: the other end may be gone without a word


class Watch:
    """Calls `possibly` when the total may have passed the mark, then `certainly` when it has.

    Each is called once, with the answer, from a thread of the watch. It ends after the second call, or when closed.
    """

    def __init__(
        self, reader: ApiClient, counter: str, over: int, possibly: Callback | None, certainly: Callback | None
    ) -> None:
        self.verdict: Verdict | None = None
        self.last_error: str | None = None  # why there is no news, if so
        self._reader = reader
        self._counter = counter
        self._mark = Threshold(over)
        self._callbacks: dict[Verdict, Callback | None] = {"possibly": possibly, "certainly": certainly}
        self._over = Event()
        self._stream: Stream | None = None
        self._thread = Thread(target=self._run, name="countless-watch", daemon=True)

    def __repr__(self) -> str:
        return f"<Watch of {self._counter!r} over {self._mark.over:,}: {self.verdict or 'not yet'}>"

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Until the total has certainly passed the mark, and the callbacks have returned."""
        self._over.wait(timeout)
        return self.verdict == "certainly"

    def close(self) -> None:
        """No more calls; one that has begun may still be running."""
        self._over.set()
        if self._stream is not None:
            self._stream.interrupt()

    def _run(self) -> None:
        backoff = Backoff()
        while not self._over.is_set():
            try:
                self._stream = self._reader.watch(self._counter, _QUIET)
                for answer in self._stream:
                    if self._over.is_set():
                        return
                    self.last_error = None
                    backoff.reset()
                    self._hear(answer)
            except ServiceError as error:
                self.last_error = str(error)
                log.info("watching %r: %s; trying again", self._counter, error)
            finally:
                if self._stream is not None:
                    self._stream.close()
            self._over.wait(backoff.next())

    def _hear(self, answer: dict[str, Any]) -> None:
        for word in self._mark.news(self.verdict, answer["lower"], answer["upper"]):
            try:
                (self._callbacks[word] or _nothing)(answer)
            except Exception:  # the program's, not ours: the watch goes on
                log.exception("the callback %r of the watch of %r failed", word, self._counter)
            self.verdict = word
        if self.verdict == "certainly":
            self._over.set()


def _nothing(answer: dict[str, Any]) -> None:
    pass
