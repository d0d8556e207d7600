"""The client: what a program uses to count towards totals that a coordinator keeps.

    client = countless.connect("http://127.0.0.1:2686")
    client.counter("requests").add(5)
    client.counter("requests").labels(route="/a").inc()

Counting is local: `add` raises a number and sometimes queues a message. One thread in the background talks to the
coordinator, and goes on trying when there is none; what was counted meanwhile is delivered later, exactly once, because
everything that is sent is cumulative.
"""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Condition, RLock, Thread
from time import monotonic
from typing import TYPE_CHECKING
from weakref import WeakSet

from countless.client import forks
from countless.client.counter import LABEL_CAP, Counter
from countless.client.local_counter import LocalCounter
from countless.client.session.loop import Exchange
from countless.client.session.protocol import new_incarnation
from countless.client.transport.base import carrier_to
from countless.client.transport.websocket import Endpoint, WebSocketConnection
from countless.core.messages import SiteId, UpMessage
from countless.core.site import Site
from countless.core.triggers import EveryNth
from countless.errors import InvalidParameter
from countless.randomness import SystemRandom
from countless.wire.names import validate_name
from countless.wire.nats_url import SCHEMES as NATS_SCHEMES
from countless.wire.nats_url import Broker

if TYPE_CHECKING:
    from countless.client.durable.state import Keeper
    from countless.client.watch import Callback, Watch

log = logging.getLogger("countless")

_NEVER = EveryNth(1 << 62)  # the pace of a client that is switched off
_DICE = SystemRandom()


def connect(
    url: str | None = None,
    token: str | None = None,
    site: str | None = None,
    state_dir: str | os.PathLike[str] | None = None,
) -> "Client":
    """A client of the coordinator at `url`, or of those behind the broker at `nats://...`; never waits for it.

    With a `state_dir` counts are kept in a file there, and what a process that was killed could not deliver is
    delivered by the next one that uses the directory. Processes may share it; it belongs to one coordinator, so it is
    refused with a broker.

    What is not given comes from the environment: `COUNTLESS_URL`, `COUNTLESS_TOKEN` (or `COUNTLESS_TOKEN_FILE`),
    `COUNTLESS_SITE` and `COUNTLESS_CLIENT_STATE_DIR`; the site's name is the host's name otherwise. Processes may share
    a name. With `COUNTLESS_DISABLE=1` nothing is ever sent or kept.
    """
    environment = os.environ
    file = environment.get("COUNTLESS_TOKEN_FILE")
    if token is None:
        token = environment.get("COUNTLESS_TOKEN") or (Path(file).read_text(encoding="utf-8").strip() if file else None)
    url = url or environment.get("COUNTLESS_URL") or "http://127.0.0.1:2686"
    directory = state_dir or environment.get("COUNTLESS_CLIENT_STATE_DIR")
    return Client(
        Broker.parse(url) if url.startswith(NATS_SCHEMES) else Endpoint.parse(url),
        token,
        validate_name(site or environment.get("COUNTLESS_SITE") or socket.gethostname()),
        Path(directory) if directory else None,
        disabled=environment.get("COUNTLESS_DISABLE") == "1",
    )


class Client:
    """Counts of one process on their way to the coordinator. Use `connect` to make one."""

    def __init__(
        self,
        endpoint: Endpoint | Broker,
        token: str | None,
        site: str,
        state_dir: Path | None = None,
        *,
        disabled: bool = False,
    ) -> None:
        self.endpoint = endpoint
        self.site = site
        self.last_error: str | None = None  # why there is no connection, if there is none
        self._token = token
        self._disabled = disabled
        self._lock = RLock()
        self._meters: dict[str, LocalCounter] = {}
        self._series: dict[str, Counter] = {}
        self._begin_life()
        self._keeper = None if state_dir is None or disabled else self._keep_in(state_dir)
        if not disabled:
            forks.look_after(self)

    def _begin_life(self) -> None:
        self.site_id = SiteId(self.site, new_incarnation())
        self._thread: Thread | None = None
        self._change = Condition(self._lock)  # something was confirmed, or the thread has ended
        carrier = carrier_to(self.endpoint, self._token, self.site)
        self._exchange = Exchange(self.site_id, self._meters, self._lock, carrier, self._note, self._another_life)
        self._watches: WeakSet[Watch] = WeakSet()
        self._closing = False

    def _keep_in(self, directory: Path) -> "Keeper":
        place = self.endpoint
        if isinstance(place, Broker):
            raise InvalidParameter(
                "state_dir",
                str(directory),
                f"left out with the broker {place.base}, because a file of counts belongs to one coordinator",
            )
        from countless.client.durable.state import Keeper  # most clients keep nothing, and not every system could

        return Keeper(directory, self.site_id, lambda: WebSocketConnection(place, self._token), self._lock)

    def __repr__(self) -> str:
        state = "closed" if self._closing else f"trouble: {self.last_error}" if self.last_error else "open"
        return f"<Client of {self.endpoint.base}, site {self.site!r}: {len(self._meters)} counters, {state}>"

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For programs

    @property
    def connected(self) -> bool:
        """Whether a coordinator has answered on the present connection. There is none before something is counted."""
        return self._exchange.connected

    def counter(self, name: str, *, label_cap: int = LABEL_CAP) -> Counter:
        """The counter of this name; asking again gives the same one."""
        series = self._series.get(name)
        if series is None:
            validate_name(name)
            with self._lock:
                series = self._series.setdefault(name, Counter(name, self._meter, label_cap))
        return series

    def watch(
        self,
        counter: str,
        *,
        over: int,
        possibly: "Callback | None" = None,
        certainly: "Callback | None" = None,
        token: str | None = None,
    ) -> "Watch":
        """Be called when the total of all sites has possibly, and then when it has certainly, passed a mark.

        Each is called once, in this order, from a thread of the watch, with the answer. Reading needs a `token` of
        scope read, if the client's own is one for counting. A forked child does not inherit the watch.
        """
        from countless.client.api import ApiClient  # whoever only counts need not wait for it
        from countless.client.watch import Watch

        watch = Watch(ApiClient(self.endpoint.base, token or self._token), counter, over, possibly, certainly)
        if not self._disabled:
            self._watches.add(watch)
            watch.start()
        return watch

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all that was due so far is on the coordinator's disk; False if it took longer.

        Not everything is due: a site speaks when its pace says so, and that is what the bounds of the answer are for.
        """
        with self._lock:
            if self._disabled or self._thread is None:
                return True
            exchange = self._exchange
            number = exchange.ask()
            exchange.awaited += 1
            try:
                self._change.wait_for(lambda: exchange.confirmed >= number or self._thread is None, timeout)
            finally:
                exchange.awaited -= 1
            return exchange.confirmed >= number

    def close(self, timeout: float = 5.0) -> bool:
        """Deliver the exact counts and go. False: not delivered in time.

        What was not reported is lost then; with a `state_dir` it stays there for the next process.
        """
        forks.forget(self)
        for watch in list(self._watches):
            watch.close()
        deadline = monotonic() + timeout
        with self._lock:
            thread, self._closing = self._thread, True
            for meter in self._meters.values():
                if meter.open:
                    meter.close()
            if thread is not None:
                self._exchange.leave()
        if thread is not None:
            thread.join(timeout)
        with self._lock:
            self._exchange.stop()
            settled = self._exchange.delivered or not any(meter.count for meter in self._meters.values())
        if self._keeper is not None:
            self._keeper.end(settled, deadline - monotonic())
        return settled or self._disabled

    # Under the lock

    def _meter(self, name: str) -> LocalCounter:
        with self._lock:
            if name not in self._meters:
                trigger = _NEVER if self._disabled else None
                site = Site(name, self.site_id, _DICE, trigger=trigger)
                new = LocalCounter if self._keeper is None else self._keeper.meter
                self._meters[name] = new(site, self._lock, self._deliver)
                self._exchange.include(name)
            return self._meters[name]

    def _deliver(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        if self._thread is None and not self._closing:
            self._start()
        self._exchange.queue(site.counter, messages)

    def _start(self) -> None:
        self._exchange.open()
        self._thread = Thread(target=self._run, name="countless", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is going down: whoever counts now must not be told so
            self._closing, self._thread = True, None
            self._exchange.drop()
        if self._keeper is not None:
            self._keeper.inherit()

    # Around a fork

    def hold(self) -> None:
        """Before a fork: let nobody be in the middle of something."""
        self._lock.acquire()

    def release(self) -> None:
        """After it."""
        self._lock.release()

    def reborn_in_child(self) -> None:
        """In the child: another life, and nothing counted yet. The parent's connection is not ours to speak on."""
        if self._thread is not None:
            self._exchange.drop()
        closing = self._closing
        self._begin_life()
        self._closing = closing
        if closing:
            return
        if self._keeper is not None:
            self._keeper.move(self.site_id, self._meters)
        for name, meter in self._meters.items():

            def site_with(count: int, name: str = name) -> Site:
                return Site(name, self.site_id, _DICE, count=count)

            meter.reborn(site_with, None)

    # The thread

    def _run(self) -> None:
        self._exchange.run()
        with self._lock:
            self._thread = None
            self._change.notify_all()

    def _note(self, trouble: str | None) -> None:
        if trouble is not None and trouble != self.last_error:
            log.warning("%s; counting goes on and is delivered later", trouble)
        self.last_error = trouble
        if trouble is None:
            with self._lock:
                self._change.notify_all()

    @contextmanager
    def _another_life(self, site_id: SiteId) -> Iterator[None]:
        """The coordinator has given the one before up."""
        with self._keeper.another_life(site_id.incarnation) if self._keeper else nullcontext():
            yield
        self.site_id = site_id
