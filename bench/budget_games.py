"""Budgets against a server that decides each request: messages in games of holds and windows, and waits on a network.

A server needs two messages for a request, and one for a settlement. `furthest` is how near the worst site came to
Theorem 11 of design/proofs/budgets.md, which allows four messages for a request and one for a settlement. What the
former design needed, with rounds, is that of its last version.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from random import Random

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.hold import Hold
from countless.core.budget.messages import BudgetId, Outbox
from countless.core.budget.site import BudgetSite, Verdict
from countless.core.messages import SiteId
from countless.errors import LimitExceeded
from countless.inprocess.budget import Budget
from tools.tables import Table

FLEETS = (3, 10, 100, 1_000)
UNITS_A_SITE = 200
STEPS, ROLLING_STEPS = 8_000, 16_000
WINDOW_S, WINDOWS = 60.0, 6


class Game:
    """A budget in one process, and what each site has sent, received and decided."""

    def __init__(self, sites: int, limit: int, slack: float, *, rolling: bool = False) -> None:
        self.now = 0.0
        self.rng = Random(1)  # noqa: S311
        self.sites, self.limit = sites, limit
        self.budget = Budget(
            limit, sites, slack, rolling=WINDOW_S if rolling else None, clock=(lambda: self.now) if rolling else None
        )
        self.messages: Counter[int] = Counter()
        self.requests: Counter[int] = Counter()
        self.settlements: Counter[int] = Counter()
        self.budget._accounts.meter.taps.append(self._count)

    def _count(self, site_id: SiteId, message: object) -> None:
        self.messages[int(site_id.site)] += 1

    def take(self, site: int, n: int = 1) -> bool:
        self.requests[site] += 1
        return bool(self.budget.site(site).take(n))

    def reserve(self, site: int, n: int) -> Hold | None:
        self.requests[site] += 1
        with suppress(LimitExceeded):
            return self.budget.site(site).reserve(n)
        return None

    def settle(self, site: int, hold: Hold, used: int = 0) -> None:
        self.settlements[site] += 1
        hold.settle(used)

    def row(self) -> tuple[str, str, str, str]:
        requests, settlements = self.requests.total(), self.settlements.total()
        bounds = {site: 4 * self.requests[site] + self.settlements[site] for site in range(self.sites)}
        assert all(self.messages[site] <= bounds[site] for site in bounds), "a site is above Theorem 11"
        furthest = max(self.messages[site] / max(1, bounds[site]) for site in bounds)
        ours, server = self.messages.total() / requests, (2 * requests + settlements) / requests
        return f"{server:.2f}", f"{ours:.2f}", f"{ours / server:.2f}", f"{furthest:.2f}"


def round_robin(game: Game) -> None:
    for number in range(game.limit * 5 // 4):
        game.take(number % game.sites)


def bursts(game: Game) -> None:
    """A random site spends a little more than it can admit unheard: the traffic of Theorem 4."""
    refused = 0
    while refused < game.sites:
        site = game.rng.randrange(game.sites)
        left = game.limit - game.budget.spent
        for _ in range(2 * left // game.sites + 1):
            refused += not game.take(site)


def overload(game: Game) -> None:
    for _ in range(10 * game.limit):
        game.take(game.rng.randrange(game.sites))


def hoarders(game: Game) -> None:
    """Each site in turn reserves one unit, or, with probability 1/3, half of what is left, for 60 requests."""
    holds: deque[tuple[int, int, Hold]] = deque()
    for number in range(STEPS):
        _settle_due(game, holds, number)
        site, left = number % game.sites, game.limit - game.budget.held
        hold = game.reserve(site, 1 if game.rng.randrange(3) else max(1, left // 2))
        if hold is not None:
            holds.append((number + 60, site, hold))


def rush(game: Game) -> None:
    """Twice as much is wanted as there is. Every hold returns all."""
    holds: deque[tuple[int, int, Hold]] = deque()
    lasts = 2 * game.limit // 20
    for number in range(max(STEPS, 4 * lasts)):
        _settle_due(game, holds, number)
        site = game.rng.randrange(game.sites)
        held = game.reserve(site, game.rng.randint(1, 39))
        if held is not None:
            holds.append((number + lasts, site, held))


def _settle_due(game: Game, holds: deque[tuple[int, int, Hold]], number: int) -> None:
    while holds and holds[0][0] <= number:
        _, site, hold = holds.popleft()
        game.settle(site, hold)


def bouncing(game: Game) -> None:
    """Few units are left. Each is held for a moment, at one site after another."""
    spare = game.sites // 4 + 2
    game.take(0, game.limit - spare)
    holds: deque[tuple[int, Hold]] = deque()
    for _ in range(STEPS):
        site = game.rng.randrange(game.sites)
        hold = game.reserve(site, 1)
        if hold is not None:
            holds.append((site, hold))
        if len(holds) > spare // 2:
            game.settle(*holds.popleft())


def see_saw(game: Game) -> None:
    """Each site holds one unit in turn; then one holds all."""
    for number in range(max(2, STEPS // (game.sites + 1))):
        for site in range(game.sites):
            hold = game.reserve(site, 1)
            if hold is not None:
                game.settle(site, hold)
        site = number % game.sites
        hold = game.reserve(site, game.limit)
        if hold is not None:
            game.settle(site, hold)


def windows(game: Game, holds: bool = False) -> None:
    held: deque[tuple[float, int, Hold]] = deque()
    for _ in range(ROLLING_STEPS):
        game.now += game.rng.expovariate(ROLLING_STEPS / WINDOWS / WINDOW_S)
        while held and held[0][0] <= game.now:
            _, site, hold = held.popleft()
            game.settle(site, hold, game.rng.randint(0, hold.units))
        site = game.rng.randrange(game.sites)
        if not holds:
            game.take(site)
            continue
        reserved = game.reserve(site, 1)
        if reserved is not None:
            held.append((game.now + 1.0, site, reserved))


GAMES: tuple[tuple[str, Callable[[Game], None], tuple[float, ...]], ...] = (
    ("round robin", round_robin, (0.01, 0)),
    ("traffic of Theorem 4", bursts, (0.01, 0)),
    ("hoarders", hoarders, (0.01, 0)),
    ("rush of holds", rush, (0.01, 0)),
    ("bouncing holds", bouncing, (0.01, 0)),
    ("see-saw", see_saw, (0,)),
)
LOADS = ((0.5, 0.01), (0.9, 0.01), (2.0, 0.01), (2.0, 0.0))  # requests in a window, of the limit; slack
COMPARED = {  # a game and its slack, in the words of docs/understand/comparison.md
    ("round robin", "1%"): "requests in turn",
    ("rush of holds", "0%"): "reservations, twice the limit",
    ("hoarders", "0%"): "some reserve half of what is left",
    ("see-saw", "0%"): "one reserves all, in turn",
    ("rolling, holds, load 2.0", "1%"): "rolling minute, reservations",
}
OVERLOADS = (  # sites, limit, slack; and the messages of the former design, in its last version
    *((3, 1_000, 0.01, 62), (3, 1_000, 0.0, 66)),
    *((100, 100_000, 0.01, 3_068), (100, 100_000, 0.0, 3_572)),
)
COLUMNS = ("game", "slack", "sites", "server", "messages a request", "of a server", "furthest")


def _played(name: str, slack: float, game: Game, play: Callable[[Game], None]) -> tuple[str, ...]:
    play(game)
    row = (name, f"{slack:.0%}", f"{game.sites:,}", *game.row())
    print(" ".join(row), flush=True)
    return row


def _beside_a_server(rows: list[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Messages a request and those of a server, for each number of sites."""
    for game, words in COMPARED.items():
        yield words, *(f"{ours}/{server}" for name, slack, _, server, ours, *_ in rows if (name, slack) == game)


def main() -> Iterator[Table]:
    rows: list[tuple[str, ...]] = []
    for name, play, slacks in GAMES:
        for slack in slacks:
            rows += [_played(name, slack, Game(sites, UNITS_A_SITE * sites, slack), play) for sites in FLEETS]
    for load, slack in LOADS:
        limit = round(ROLLING_STEPS / WINDOWS / load)
        for sites in FLEETS:
            rows.append(_played(f"rolling, load {load}", slack, Game(sites, limit, slack, rolling=True), windows))
    for sites in FLEETS:
        game = Game(sites, round(ROLLING_STEPS / WINDOWS / 2), 0.01, rolling=True)
        rows.append(_played("rolling, holds, load 2.0", 0.01, game, lambda game: windows(game, holds=True)))
    yield Table("budgets-games", COLUMNS, rows)
    yield Table("budgets-server", ("", *(f"{sites:,}" for sites in FLEETS)), list(_beside_a_server(rows)))
    yield Table("budgets-waits", WAIT_COLUMNS, list(wait_rows()))
    exhausted = []
    for sites, limit, slack, before in OVERLOADS:
        game = Game(sites, limit, slack)
        overload(game)
        messages = f"{game.messages.total():,} ({before:,})"
        exhausted.append((f"{sites:,}", f"{limit:,}", f"{slack:.0%}", f"{10 * limit:,}", messages))
    yield Table("budgets-overload", ("sites", "limit", "slack", "requests", "messages (before)"), exhausted)


# Waits: sites that send and receive with delays, and keep the order of messages

WAIT_COLUMNS = (
    *("sites", "limit", "requests a site and round trip", "wanted, of the limit", "delays"),
    *("p50 (before)", "p99 (before)", "messages (before)", "server"),
)
WAITS = (  # and, of the former design in the same game, p50 and p99 in round trips, and messages a request
    (10, 30, 0.4, 1.4, "exponential", (2.7, 21.1, 4.41)),
    (50, 150, 0.2, 1.4, "fixed", (2.1, 153.3, 146.67)),
    (50, 150, 0.2, 1.4, "exponential", (17.1, 105.4, 5.13)),
    (50, 2_000, 0.4, 1.4, "exponential", (1.2, 41.3, 1.95)),
    (10, 30, 4.0, 14, "exponential", (1.8, 7.4, 0.62)),
)
MEAN_UNITS = 1.4  # of a request


class Network:
    """Requests of one unit, and sometimes more, that are held and come back. One way takes 1, in the mean."""

    def __init__(self, sites: int, limit: int, rate: float, wanted: float, delays: str) -> None:
        self.rng = Random(1)  # noqa: S311
        self.budget = BudgetId("b")
        self.coordinator = BudgetCoordinator(self.budget, limit, slack=0)
        self.sites = [BudgetSite(self.budget) for _ in range(sites)]
        self.waiting: list[list[tuple[int, float]]] = [[] for _ in self.sites]
        self.last_up, self.last_down = [0.0] * sites, [0.0] * sites
        self.fixed, self.rate = delays == "fixed", rate * sites / 2
        self.held_for = wanted * limit / (self.rate * MEAN_UNITS)  # in the mean
        self.now, self.messages, self.settlements = 0.0, 0, 0
        self.waits: list[float] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def after(self, seconds: float, event: Callable[[], None], not_before: float = 0.0) -> float:
        moment = max(self.now + seconds, not_before)
        heappush(self._events, (moment, next(self._numbers), event))
        return moment

    def _delay(self) -> float:
        return 1.0 if self.fixed else self.rng.expovariate(1.0)

    def run(self, requests: int) -> None:
        arrival = 0.0
        for _ in range(requests):
            arrival += self.rng.expovariate(self.rate)
            site, units = (
                self.rng.randrange(len(self.sites)),
                self.rng.choice((2, 5, 8)) if self.rng.random() < 0.1 else 1,
            )
            self.after(arrival, lambda site=site, units=units: self._arrive(site, units))  # type: ignore[misc]
        while self._events:
            self.now, _, event = heappop(self._events)
            event()

    def _arrive(self, number: int, units: int) -> None:
        self._send(number, self._decide(number, units, self.now))

    def _decide(self, number: int, units: int, since: float) -> tuple[object, ...]:
        taken = self.sites[number].reserve(units)
        if taken.verdict is Verdict.WAITING:
            self.waiting[number].append((units, since))
        else:
            self.waits.append(self.now - since)
            if taken.verdict is Verdict.ALLOWED:
                self.after(self.rng.expovariate(1 / self.held_for), lambda: self._settle(number, units))
        return taken.messages

    def _again(self, number: int) -> None:
        site, waiting, self.waiting[number] = self.sites[number], self.waiting[number], []
        site.repeat()
        for units, since in waiting:
            self._decide(number, units, since)
        self._send(number, site.proceed())

    def _settle(self, number: int, units: int) -> None:
        self.settlements += 1
        self.sites[number].settle(units, 0)
        self._again(number)

    def _send(self, number: int, messages: tuple[object, ...]) -> None:
        for message in messages:
            self.messages += 1
            self.last_up[number] = self.after(
                self._delay(),
                lambda message=message: self._deliver(self.coordinator.receive(SiteId(number), message)),  # type: ignore[misc]
                self.last_up[number],
            )

    def _deliver(self, outbox: Outbox) -> None:
        for site_id, quota in outbox:
            number = int(site_id.site)
            self.messages += 1

            def arrive(number: int = number, quota: object = quota) -> None:
                self.sites[number].receive(quota)  # type: ignore[arg-type]
                self._again(number)

            self.last_down[number] = self.after(self._delay(), arrive, self.last_down[number])


def wait_rows(requests: int = 5_000) -> Iterator[tuple[str, ...]]:
    for sites, limit, rate, wanted, delays, before in WAITS:
        network = Network(sites, limit, rate, wanted, delays)
        network.run(requests)
        waits = sorted(network.waits)
        assert len(waits) == requests
        p50, p99 = waits[requests // 2] / 2, waits[requests * 99 // 100] / 2
        measured = zip((1, 1, 2), (p50, p99, network.messages / requests), before, strict=True)
        texts = (f"{ours:.{digits}f} ({former:,.{digits}f})" for digits, ours, former in measured)
        server = 2 + network.settlements / requests
        row = f"{sites}", f"{limit:,}", f"{rate}", f"{wanted}", delays, *texts, f"{server:.2f}"
        print(" ".join(row), flush=True)
        yield row
