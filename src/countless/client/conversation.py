"""A conversation with one shard: when a line breaks, it goes on with a fresh one after a pause."""

from collections.abc import Callable, Generator
from time import monotonic, time

from countless.client.carrier import Carrier, News
from countless.client.link import LinkError
from countless.client.talk import Reborn, Talk
from countless.core.messages import Address
from countless.errors import ProtocolError
from countless.randomness import SystemDice

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 15.0  # seconds between attempts, before jitter
_NEVER = float("inf")
_DICE = SystemDice()

Note = Callable[[str | None], None]  # what the trouble is; None: something was confirmed


def jittered(pause: float) -> float:
    """Somewhat less or more, so that a fleet does not come all at once."""
    return pause * (0.5 + _DICE.fraction())


def new_incarnation() -> int:
    """Later lives have higher numbers, and nobody can guess one."""
    return (int(time()) << 30) | _DICE.below(1 << 30)


class Conversation:
    """One talk, on one line after another. Belongs to the client's thread."""

    def __init__(self, talk: Talk, shard: int, carrier: Carrier, note: Note) -> None:
        self.look_again = 0.0  # at this time, if nothing happens before
        self._talk = talk
        self._shard = shard
        self._carrier = carrier
        self._note = note
        self._pause = FIRST_PAUSE
        self._speaking: Generator[float, list[bytes], None] | None = None

    def step(self, news: News, hurry: bool) -> None:
        """Go on, with what has arrived; or begin, when it is time or somebody is in a `hurry`."""
        try:
            if self._speaking is not None:
                self._hear(self._speaking, news)
            elif not self._talk.needed or self._talk.delivered:
                self.look_again = _NEVER
            elif hurry or news or self.look_again == _NEVER or monotonic() >= self.look_again:
                self._begin()  # news without a line: another coordinator has called
        except StopIteration:
            self._end(_NEVER)
        except Reborn as death:
            self._talk.reborn(Address(self._talk.address.site, new_incarnation()), death.known)
            self._end(0.0)
        except (LinkError, ProtocolError) as error:
            self._note(str(error))
            self._pause = FIRST_PAUSE if self._talk.heard else self._pause
            self._end(monotonic() + jittered(self._pause))
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _begin(self) -> None:
        self._talk.heard = False
        send = self._carrier.open(self._shard)
        self._speaking = self._talk.converse(send, lambda: self._note(None))
        self.look_again = monotonic() + next(self._speaking)

    def _hear(self, speaking: Generator[float, list[bytes], None], news: News) -> None:
        if isinstance(news, LinkError):
            raise news
        self.look_again = monotonic() + speaking.send(news)

    def _end(self, look_again: float) -> None:
        self._speaking, self.look_again = None, look_again
        self._carrier.hang_up(self._shard)
