"""`wait="period"` with a real client and a real coordinator: the client's clock moves only when a call sleeps."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from time import monotonic, time

import pytest

from countless import LimitExceeded, limited
from countless.client.client import Client
from countless.client.surroundings import REAL
from countless.client.transport.endpoint import Endpoint
from countless.core.calendar import Calendar
from support.service import TIMEOUT_S, Server

pytestmark = pytest.mark.slow

DAY_S = 86_400.0
# The coordinator has a real clock: its month began about two weeks ago.
CALENDAR = Calendar("month", "UTC", (datetime.now(UTC).day + 13) % 28 + 1)
START, END = CALENDAR.bounds(CALENDAR.period_at(time()))


class Clock:
    """`now` is the day before the coordinator's month ends."""

    def __init__(self) -> None:
        self.now = END - DAY_S
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("state")) as server:
        monthly = {"name": "mails/*", "limit": 2, "slack": 0.0, "per": "month", "anchor": CALENDAR.anchor}
        server.reader.request("POST", "/api/v1/budgets", monthly)
        rolling = {"name": "charges", "limit": 2, "slack": 0.0, "rolling": "1s"}
        server.reader.request("POST", "/api/v1/budgets", rolling)
        yield server


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("countless.limiting.limit.sleep", clock.sleep)
    monkeypatch.setattr("countless.limiting.limit.monotonic", lambda: monotonic() + sum(clock.slept))
    return clock


@pytest.fixture
def client(server: Server, clock: Clock) -> Iterator[Client]:
    with Client(Endpoint.parse(server.url), None, "web", surroundings=REAL._replace(wall_clock=clock)) as client:
        yield client


def test_call_beyond_the_limit_runs_when_the_next_period_begins(client: Client, clock: Clock) -> None:
    @limited("mails/{to}", client=client, wait="period", timeout=2 * DAY_S)
    def send(to: str) -> float:
        return clock.now

    assert [send("a") for _ in range(4)] == [END - DAY_S, END - DAY_S, END, END]
    assert clock.slept == [DAY_S]
    with pytest.raises(LimitExceeded) as refused:  # the period after that is more than two days away
        send("a")
    assert clock.slept == [DAY_S]
    assert refused.value.retry_after == CALENDAR.bounds(CALENDAR.period_at(END))[1] - END


async def test_coroutine_waits_for_room_in_the_rolling_window(client: Client) -> None:
    """By the real clock, for a second: what a rolling budget lends is counted by the coordinator's clock, too."""

    @limited("charges", client=client, wait="period", timeout=TIMEOUT_S)
    async def charge() -> float:
        return monotonic()

    times = [await charge() for _ in range(4)]
    assert times[2] - times[0] >= 1.0
    assert times[3] - times[1] >= 1.0


async def test_waiting_call_waits_for_the_coordinator_too(server: Server, client: Client, clock: Clock) -> None:
    @limited("mails/{to}", client=client, wait="period", timeout=TIMEOUT_S)
    async def send(to: str) -> str:
        return to

    assert await send("b") == "b"
    server.kill()
    first = asyncio.create_task(send("c"))
    assert not (await asyncio.wait([first], timeout=0))[0]
    server.start()
    assert await first == "c"
