"""A conversation with one shard: when a line breaks, it goes on with a fresh one after a pause."""

from collections.abc import Callable, Generator
from time import monotonic

from countless.client.session.backoff import Backoff
from countless.client.session.protocol import AnotherLife, Reborn, Talk
from countless.client.transport.base import Carrier, News
from countless.client.transport.websocket import ConnectionLost
from countless.errors import ProtocolError

_NEVER = float("inf")

Note = Callable[[str | None], None]  # what the trouble is; None: something was confirmed


class Conversation:
    """One talk, on one line after another. Belongs to the client's thread."""

    def __init__(self, talk: Talk, shard: int, carrier: Carrier, note: Note, another_life: AnotherLife) -> None:
        self.look_again = 0.0  # at this time, if nothing happens before
        self._talk = talk
        self._shard = shard
        self._carrier = carrier
        self._note = note
        self._another_life = another_life
        self._backoff = Backoff()
        self._speaking: Generator[float, list[bytes], None] | None = None

    def step(self, news: News, hurry: bool, awaited: bool) -> None:
        """Go on, with what has arrived; or begin: when it is time, sooner if it is `awaited`, now in a `hurry`."""
        try:
            if self._speaking is not None:
                self._hear(self._speaking, news)
            elif not self._talk.needed or self._talk.over:
                self.look_again = _NEVER
            elif hurry or news or self.look_again == _NEVER or monotonic() >= self.look_again:
                self._begin()  # news without a line: another coordinator has called
        except StopIteration:
            self._end(_NEVER)
        except Reborn as death:
            self._talk.reborn(death.known, self._another_life)
            self._end(0.0)
        except (ConnectionLost, ProtocolError) as error:
            self._note(str(error))
            if self._talk.heard:
                self._backoff.reset()
            self._end(monotonic() + self._backoff.next(awaited))

    def _begin(self) -> None:
        send = self._carrier.open(self._shard)
        self._speaking = self._talk.converse(send, lambda: self._note(None))
        self.look_again = monotonic() + next(self._speaking)

    def _hear(self, speaking: Generator[float, list[bytes], None], news: News) -> None:
        if isinstance(news, ConnectionLost):
            raise news
        self.look_again = monotonic() + speaking.send(news)

    def _end(self, look_again: float) -> None:
        self._speaking, self.look_again, self._talk.heard = None, look_again, False
        self._carrier.hang_up(self._shard)
