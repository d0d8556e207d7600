"""A reader that watches one counter, connects again whenever its stream ends, and compares what it is shown."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from countless.core.random_source import RandomSource
from countless.errors import InvariantBroken
from countless.server.http.answers.published import public_view
from countless.server.http.answers.sums import find_parts, summed
from countless.server.http.api.schemas import PublicAnswer
from countless.server.site_server import SiteServer
from simulator.transcript import Transcript
from simulator.truth import Truth

_RETRY_S = 1.0
_MAX_STREAM_S = 40.0  # then it asks again, perhaps another coordinator
OnEvent = Callable[[bytes], None]


class Watchable(Protocol):
    def watch(self, counter: str, on_event: OnEvent) -> "asyncio.Task[None] | None":
        """A stream of server-sent events, which ends with the coordinator; None: no coordinator can be reached."""

    def servers(self) -> list[SiteServer]: ...


class Reader:
    """Runs until it is cancelled. `failure` is the first thing that was wrong."""

    def __init__(
        self,
        counter: str,
        families: tuple[str, ...],
        service: Watchable,
        truth: Truth,
        rng: RandomSource,
        transcript: Transcript,
    ) -> None:
        self.counter = counter
        self.failure: Exception | None = None
        self.stays = False  # on its stream, until that ends
        self._service = service
        self._truth = truth
        self._rng = rng
        self._transcript = transcript
        self._of_family = any(counter.startswith(family) for family in families)
        self._shown: PublicAnswer | None = None

    async def run(self) -> None:
        while True:
            stream = self._service.watch(self.counter, self._on_event)
            if stream is not None:
                await self._wait(stream)
            await asyncio.sleep(_RETRY_S)

    async def _wait(self, stream: "asyncio.Task[None]") -> None:
        await asyncio.wait([stream], timeout=self._rng.random() * _MAX_STREAM_S)
        if self.stays:
            await asyncio.wait([stream])
        stream.cancel()
        with suppress(asyncio.CancelledError):
            try:
                await stream
            except Exception as error:
                self.failure = self.failure or error

    def _on_event(self, event: bytes) -> None:
        for line in event.splitlines():
            if line.startswith(b"data: "):
                self._on_answer(msgspec.json.decode(line[6:], type=PublicAnswer))

    def _on_answer(self, answer: PublicAnswer) -> None:
        self._transcript.add("reader", repr(_shown(answer)).encode())  # without its time, that of the real clock
        before, total = self._shown, self._truth.total(self.counter)
        if before is not None and self._falls(before, answer):
            raise InvariantBroken(f"a reader of {self.counter} was shown {before}, and then {answer}")
        if answer.lower > total:
            raise InvariantBroken(f"a reader of {self.counter} was shown {answer}, in truth {total}")
        self._shown = answer

    def _falls(self, before: PublicAnswer, answer: PublicAnswer) -> bool:
        """The estimate may only fall to the upper bound: it was more than is known now. That of a family is the middle
        of its bounds, of which the lower one does not fall. In a sum of series one may have fallen to its own bound.
        Whatever happens, no upper bound is below an earlier lower one, but for events that are lost.
        """
        if self._of_family:
            return answer.lower < before.lower
        if answer.upper + self._truth.lost(self.counter) < before.lower:
            return True
        if sum(len(find_parts(server, self.counter)) for server in self._service.servers()) > 1:
            return False
        return answer.estimate < before.estimate and answer.upper - answer.estimate > 1

    def on_restored(self) -> None:
        """The state is an older copy: totals may have fallen."""
        self._shown = None

    def trouble(self) -> str | None:
        """The fault, once the world is quiet: a reader that was not shown the current answer."""
        for server in self._service.servers():
            parts = find_parts(server, self.counter)
            if parts:
                present = summed(self.counter, [public_view(part) for part in parts])
                if self._shown is None or _shown(present) != _shown(self._shown):
                    return f"a reader of {self.counter} was shown {self._shown}, present is {present}"
        return None


def _shown(answer: PublicAnswer) -> tuple[Any, ...]:
    return answer.estimate, answer.lower, answer.upper, answer.state
