"""All conversations of a client in one life: one with each shard, in one thread."""

import select
from collections.abc import Mapping
from threading import RLock
from time import monotonic

from countless.client.local_counter import LocalCounter
from countless.client.session.backoff import Backoff
from countless.client.session.protocol import AnotherLife, Talk
from countless.client.session.reconnect import Conversation, Note
from countless.client.session.wakeup import Bell
from countless.client.transport.base import NOTHING, Carrier
from countless.client.transport.websocket import ConnectionLost
from countless.core.messages import SiteId, UpMessage
from countless.errors import ProtocolError


class Exchange:
    """What a client says in one life, to all shards."""

    def __init__(
        self,
        site_id: SiteId,
        meters: Mapping[str, LocalCounter],
        lock: RLock,
        carrier: Carrier,
        note: Note,
        another_life: AnotherLife,
    ) -> None:
        self.awaited = 0  # how many wait for a confirmation
        self._address = site_id
        self._meters = meters
        self._lock = lock
        self._carrier = carrier
        self._note = note
        self._another_life = another_life
        self._talks: list[Talk] = []  # one for each shard, once it is known how many there are
        self._bell: Bell | None = None
        self._asked = 0
        self._hurry = self._leaving = self._stopped = False

    def open(self) -> None:
        """The thread begins to listen."""
        self._bell = Bell()

    # For the program's threads, under the lock

    @property
    def over(self) -> bool:
        """Nothing more is to be said."""
        return self._stopped or (bool(self._talks) and all(talk.over for talk in self._talks))

    @property
    def connected(self) -> bool:
        """Everybody who has to be told anything has answered, on the line that is open."""
        needed = [talk for talk in self._talks if talk.needed]
        return bool(needed) and all(talk.heard for talk in needed)

    @property
    def delivered(self) -> bool:
        """We have left, and the coordinators know all."""
        return bool(self._talks) and all(talk.delivered for talk in self._talks)

    @property
    def confirmed(self) -> int:
        """The last `ask` that everybody has answered."""
        return min((talk.confirmed if talk.needed else self._asked for talk in self._talks), default=0)

    def include(self, counter: str) -> None:
        """There is one more."""
        if self._talks:
            self._talks[self._carrier.shard_of(counter)].include(counter, self._meters[counter])

    def queue(self, counter: str, messages: tuple[UpMessage, ...]) -> None:
        """To be sent soon."""
        if self._talks:
            self._talks[self._carrier.shard_of(counter)].queue(counter, messages)
        elif self._bell is not None:
            self._bell.ring()

    def ask(self) -> int:
        """For a confirmation that everything so far has arrived."""
        self._asked += 1
        for talk in self._talks:
            talk.ask(self._asked)
        self._ring()
        return self._asked

    def leave(self) -> None:
        """Say the last words."""
        self._leaving = True
        for talk in self._talks:
            talk.leave()
        self._ring()

    def stop(self) -> None:
        """Say no more."""
        self._stopped = True
        self._ring()

    def drop(self) -> None:
        """The thread was left behind by a fork."""
        self._carrier.drop()
        if self._bell is not None:
            self._bell.close()

    def _ring(self) -> None:
        self._hurry = True
        if self._bell is not None:
            self._bell.ring()

    # The thread

    def run(self) -> None:
        """Until nothing more is to be said."""
        bell = self._bell
        conversations: list[Conversation] = []
        try:
            while bell is not None and not self.over:
                arrived = self._carrier.receive() if self._wait(bell, conversations) else {}
                conversations = conversations or self._introductions()
                with self._lock:
                    hurry, self._hurry = self._hurry, False
                for shard, conversation in enumerate(conversations):
                    conversation.step(arrived.get(shard, NOTHING), hurry, self._in_haste)
        finally:
            self._carrier.close()
            if bell is not None:
                bell.close()

    def _wait(self, bell: Bell, conversations: list[Conversation]) -> bool:
        """Until something has arrived (True), somebody rings, or it is time."""
        now = monotonic()
        when = min((conversation.look_again for conversation in conversations), default=now)
        sockets = self._carrier.sockets()
        pause = None if when == float("inf") else max(0.0, when - now)
        ready, _, _ = select.select([bell.ears, *sockets], [], [], pause)
        bell.quiet()
        return any(socket in ready for socket in sockets)

    def _introductions(self) -> list[Conversation]:
        """Ask how many shards there are, and give each its counters."""
        backoff = Backoff()
        while not self._stopped:
            try:
                shards = self._carrier.shards()
                break
            except (ConnectionLost, ProtocolError) as error:
                self._note(str(error))
                self._patience(backoff.next(self._in_haste))
        else:
            return []
        with self._lock:
            self._talks = [Talk(self._address, self._lock, self._poke) for _ in range(shards)]
            for name, meter in self._meters.items():
                talk = self._talks[self._carrier.shard_of(name)]
                talk.include(name, meter)
                talk.needed = talk.needed or meter.count > 0
            for talk in self._talks:
                talk.ask(self._asked)
                if self._leaving:
                    talk.leave()
        return [
            Conversation(talk, shard, self._carrier, self._note, self._another_life)
            for shard, talk in enumerate(self._talks)
        ]

    @property
    def _in_haste(self) -> bool:
        return self._leaving or self.awaited > 0

    def _patience(self, seconds: float) -> None:
        deadline = monotonic() + seconds
        while self._bell is not None and not (self._hurry or self._stopped) and monotonic() < deadline:
            select.select([self._bell.ears], [], [], max(0.0, deadline - monotonic()))
            self._bell.quiet()
        self._hurry = False

    def _poke(self) -> None:
        if self._bell is not None:
            self._bell.ring()
