"""What operators see behind an answer: what it has cost, why this plan runs, and who counts. Reads, never changes."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from countless.core.messages import Snapshot
from countless.planning.baselines import FLUSH_PERIODS_S, flush_messages
from countless.planning.deterministic import plan_deterministic
from countless.planning.plan import Plan
from countless.schemes.auto import CANDIDATES, Auto
from countless.server.http.history import History
from countless.server.http.server_view import ServerView
from countless.server.sessions.counter import MIN_SITES_TO_PLAN, Counter
from countless.wire.frames import encode_frames

TRAFFIC = {  # what an adversary of each kind knows, in words
    "oblivious": "traffic that does not react",
    "adaptive": "traffic that sees the answers",
    "sees-everything": "traffic that sees every message",
}


def facts(counter: Counter, history: History) -> dict[str, Any]:
    """All but the sites, which have a table of their own."""
    answer = counter.published_answer
    return {
        "alpha": answer.alpha,
        "delta": answer.delta,
        "scheme": answer.scheme,
        "round": answer.round,
        "phase": counter.coordinator.phase,
        "sites": answer.sites,
        "silent": len(answer.silent),
        "cost": cost(counter, history),
        "plan": plan(counter),
    }


# What it has cost


def cost(counter: Counter, history: History) -> dict[str, Any]:
    """Messages and bytes so far, beside what the same events would have cost in other ways.

    A flush is sent by every site that is there, once in each period, but never more often than there are events. Its
    size, and that of a message for one event, is that of the smallest frame that names the counter and its count.
    """
    traffic = counter.traffic
    known = counter.coordinator.known_total
    events = known - traffic.counted_before
    frame = len(next(encode_frames([Snapshot(counter.name, counter.published_answer.round, known)])))
    others = [("one message per event", events)]
    others += [
        (f"flush every {period} s", flush_messages(events, history.site_seconds, period)) for period in FLUSH_PERIODS_S
    ]
    return {
        "since": traffic.began,
        "events": events,
        "messages": traffic.up + traffic.down,
        "up": traffic.up,
        "bytes": round(traffic.up_bytes + traffic.down_bytes),
        "to_double": counter.operator_view()["messages_to_double"],
        "others": [{"name": name, "messages": number, "bytes": number * frame} for name, number in others],
    }


# Why this plan


def plan(counter: Counter) -> dict[str, Any]:
    """The plan in force, its rivals with their prices, and the reason in a sentence."""
    answer, config = counter.published_answer, counter.config
    in_force = counter.coordinator.plan or plan_deterministic(max(1, answer.sites), answer.alpha)
    prices = _prices(counter)
    return {
        "configured": config.scheme,
        "against": TRAFFIC[config.adversary],
        "why": _why(counter, prices),
        "prices": [{"scheme": name, "messages_per_efold": price} for name, price in prices.items()],
        "reasons": [reason(each) for each in getattr(in_force, "reasons", ())],
    }


def reason(each: Any) -> dict[str, Any]:
    """One number of a plan and the inequality behind it."""
    return {"number": each.number, "value": float(each.value), "because": each.because}


def _prices(counter: Counter) -> dict[str, float]:
    """Messages while the total grows e-fold, for every scheme `auto` chooses from whose plan is worked out already."""
    sites, alpha = max(1, counter.published_answer.sites), counter.config.alpha
    prices = {"deterministic": plan_deterministic(sites, alpha).messages_per_efold}
    ahead = counter.next_plan() if counter.config.scheme == Auto.name else None
    for scheme in CANDIDATES[counter.config.adversary] if ahead else ():
        plans: list[Plan] = scheme(may_block=False).plans(ahead[1], may_block=False) if ahead else []
        if plans:
            prices[scheme.name] = min(each.messages_per_efold for each in plans)
    running = counter.coordinator.plan
    if running is not None:
        prices[counter.published_answer.scheme] = getattr(running, "messages_per_efold", 0.0)
    return dict(sorted(prices.items(), key=lambda item: item[1]))


def _why(counter: Counter, prices: dict[str, float]) -> str:
    scheme, config = counter.published_answer.scheme, counter.config
    if config.scheme != Auto.name:
        return f"This counter was configured to run {config.scheme}."
    rivals = {name: price for name, price in prices.items() if name != scheme}
    cheapest = min(rivals, key=rivals.__getitem__, default=None)
    proof = f"with a proof against {TRAFFIC[config.adversary]}"
    if scheme != "deterministic":
        return f"The cheapest {proof}, for this many sites and this total."
    if counter.published_answer.sites < MIN_SITES_TO_PLAN and config.adversary != "oblivious":
        return f"For fewer than {MIN_SITES_TO_PLAN} sites nothing {proof} is cheaper."
    if cheapest is None:
        return "Needs no plan. The plans of its rivals are being worked out."
    if rivals[cheapest] < prices[scheme]:
        return f"{cheapest} will be cheaper, and takes over with a later round, when that pays for the change."
    return f"For this many sites and this total nothing {proof} is cheaper."


# Who counts


class SiteRow(NamedTuple):
    """One life of one site, as the table shows it."""

    site: str
    state: str
    heard: float  # seconds since 1970
    known: int


_WORST_FIRST = ("silent", "away", "connected")
_KEYS = {
    "site": lambda row: row.site,
    "state": lambda row: (_WORST_FIRST.index(row.state), 0 if row.state == "connected" else row.heard, -row.known),
    "heard": lambda row: row.heard,
    "known": lambda row: row.known,
}
SITE_SORTS = tuple(_KEYS)


def site_rows(host: ServerView, counter: Counter, now: float) -> Iterator[SiteRow]:
    """Every life that counts this counter, in no order."""
    offset = now - host.now()
    for address, known in counter.coordinator.saved_state.known:
        life = host.sessions.get(address)
        if life is not None:
            yield SiteRow(str(address.site), life.state, life.last_seen + offset, known)


def site_page(rows: list[SiteRow], find: str, sort: str, start: int, length: int) -> tuple[int, list[SiteRow]]:
    """How many sites have `find` in their name, and a page of them. A minus before `sort` turns the order round."""
    wanted = find.casefold()
    found = [row for row in rows if wanted in row.site.casefold()] if wanted else rows
    found.sort(key=_KEYS[sort.removeprefix("-")], reverse=sort.startswith("-"))
    return len(found), found[start : start + length]
