"""Waiting in the background for a total to pass a threshold.

    client.watch("requests", over=1_000_000, possibly=warn, certainly=stop)

The watch reconnects whenever the coordinator cannot be reached, restarts, or does not know the counter yet.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Event, Thread
from time import sleep
from typing import Any

from countless.client.answers import TotalCount, parse_total
from countless.client.api import AnswerStream, ApiClient
from countless.client.session.reconnect import Backoff
from countless.core.answer import Threshold, Verdict
from countless.errors import InvalidParameter, ServiceError
from countless.randomness import SYSTEM_RANDOM
from countless.wire.keys import validate_name

log = logging.getLogger("countless")

Callback = Callable[[TotalCount], object]
READ_TIMEOUT_S = 45.0  # three heartbeats: after that the connection is broken, although neither side was told


def follow(api: ApiClient, counter: str, on_lost: Callable[[str], object]) -> Iterator[dict[str, Any]]:
    """The answer now and after every change, also when the coordinator was restarted in between.

    Raises ServiceError if there is no first connection, or if the coordinator refuses: the counter was deleted.
    """
    backoff = Backoff(SYSTEM_RANDOM)
    stream = api.watch(counter, READ_TIMEOUT_S)
    while True:
        try:
            with closing(stream):
                for answer in stream:
                    backoff.reset()
                    yield answer
            on_lost("connection closed by the coordinator")
        except ServiceError as error:
            on_lost(str(error))
        while True:
            sleep(backoff.next())
            try:
                stream = api.watch(counter, READ_TIMEOUT_S)
                break
            except ServiceError as error:
                if error.is_refusal:
                    raise


class Watch:
    """A watch on a total, from `Client.watch`. It ends when `certainly` has returned, or when it is closed."""

    def __init__(
        self, api: ApiClient, counter: str, over: int, possibly: Callback | None, certainly: Callback | None
    ) -> None:
        for parameter, callback in (("possibly", possibly), ("certainly", certainly)):
            if callback is not None and not callable(callback):
                raise InvalidParameter(parameter, callback, "a function of the answer")
        self.verdict: Verdict | None = None
        self.last_error: str | None = None  # why no answers arrive; None while they do
        self._api = api
        self._counter = validate_name(counter)
        self._threshold = Threshold(over)
        self._callbacks: dict[Verdict, Callback | None] = {"possibly": possibly, "certainly": certainly}
        self._ended = Event()
        self._stream: AnswerStream | None = None
        self._thread = Thread(target=self._run, name="countless-watch", daemon=True)

    def __repr__(self) -> str:
        return f"<Watch of {self._counter!r} over {self._threshold.over:,}: {self.verdict or 'not yet'}>"

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the lower bound has passed the threshold and the callbacks have returned.

        Return False on timeout.
        """
        self._ended.wait(timeout)
        return self.verdict == "certainly"

    def close(self) -> None:
        """Stop calling back. A call that has begun may still be running."""
        self._ended.set()
        if self._stream is not None:
            self._stream.interrupt()

    def _start(self) -> None:
        self._thread.start()

    def _abandon(self) -> None:
        """In a forked child: the stream is the parent's, and the thread does not exist."""
        self._ended, self._stream = Event(), None  # a thread of the parent may have held the lock of the old one
        self._ended.set()

    def _debug_state(self) -> dict[str, bool]:
        return {"streaming": self._stream is not None, "running": self._thread.is_alive()}

    def _run(self) -> None:
        backoff = Backoff(SYSTEM_RANDOM)
        while not self._ended.is_set():
            try:
                self._stream = self._api.watch(self._counter, READ_TIMEOUT_S)
                for answer in self._stream:
                    if self._ended.is_set():
                        return
                    self.last_error = None
                    backoff.reset()
                    self._on_answer(answer)
            except ServiceError as error:
                self.last_error = str(error)
                log.info("watch of %r interrupted: %s", self._counter, error)
            finally:
                if self._stream is not None:
                    self._stream.close()
            self._ended.wait(backoff.next())

    def _on_answer(self, answer: dict[str, Any]) -> None:
        for verdict in self._threshold.new_verdicts(self.verdict, answer["lower"], answer["upper"]):
            callback = self._callbacks[verdict]
            try:
                if callback is not None:
                    callback(parse_total(answer))
            except Exception:  # an error of the program, which must not end the watch
                log.exception("watch callback failed: counter=%r callback=%s", self._counter, verdict)
            self.verdict = verdict
        if self.verdict == "certainly":
            self._ended.set()
