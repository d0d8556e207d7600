"""The part of a counter that only operators see: cost, plan, sites. Nothing here changes the counter."""

from collections.abc import Iterator
from datetime import datetime
from math import ceil, log, log1p
from typing import Any, NamedTuple

import msgspec

from countless.core.messages import Snapshot
from countless.core.periods.window import WindowState
from countless.errors import InvalidParameter
from countless.planning.baselines import FLUSH_PERIODS_S, flush_messages
from countless.planning.deterministic import plan_deterministic
from countless.schemes.auto import MIN_SITES_TO_PLAN, Auto
from countless.server.http.answers.published import public_view
from countless.server.http.answers.sums import summed
from countless.server.http.api.schemas import IncompleteWindow, OperatorAnswer, UpDown, WindowsStatus
from countless.server.http.history.history import History, reachable_sites
from countless.server.http.server_view import ServerView
from countless.server.sessions.readable import RoundReader
from countless.server.site_server import SiteServer
from countless.wire.frames import encode_frames

MAX_INCOMPLETE = 48
DAY_S = 86_400
MAX_NAMES = 5  # of sites that windows wait for, on the page
ADVERSARY_TEXT = {
    "oblivious": "traffic that does not react",
    "adaptive": "traffic that sees the answers",
    "sees-everything": "traffic that sees every message",
}


def operator_answer(counter: RoundReader) -> OperatorAnswer:
    """For the API: everything except the random state."""
    answer, config, traffic = counter.published_answer, counter.spec, counter.traffic
    return OperatorAnswer(
        **msgspec.structs.asdict(public_view(counter)),
        alpha=answer.alpha,
        delta=answer.delta,
        adversary=config.adversary,
        configured_scheme=config.scheme,
        label_cap=config.label_cap,
        scheme=answer.scheme,
        round=answer.round,
        sites=answer.sites,
        silent=sorted({str(site) for site in answer.silent}),
        known=counter.known_total,
        messages=UpDown(traffic.up, traffic.down),
        bytes=UpDown(round(traffic.up_bytes), round(traffic.down_bytes)),
        messages_to_double=_messages_to_double(counter),
        windows=_windows_status(counter),
    )


def operator_sum(server: SiteServer, name: str) -> OperatorAnswer:
    """Add up a counter and its labelled series. The sum has no round; its sites are the ones of the largest part."""
    answers = [operator_answer(part.rounds) for part in server.parts(name) if part.rounds is not None]
    config = server.spec_of(name)
    if not answers:
        message = f"{name!r} is a family or a distribution, which has no rounds: ask for its answer"
        raise InvalidParameter("counter", name, message=message)
    if len(answers) == 1 and answers[0].counter == name:
        return answers[0]
    largest = max(answers, key=lambda answer: answer.sites)
    return msgspec.structs.replace(
        summed(name, answers),
        alpha=max(answer.alpha for answer in answers),
        delta=min(1.0, sum(answer.delta for answer in answers)),
        adversary=config.adversary,
        configured_scheme=config.scheme,
        label_cap=config.label_cap,
        scheme=largest.scheme,
        round=0,
        sites=largest.sites,
        silent=sorted({site for answer in answers for site in answer.silent}),
        known=sum(answer.known for answer in answers),
        messages=_added([answer.messages for answer in answers]),
        bytes=_added([answer.bytes for answer in answers]),
        messages_to_double=sum(answer.messages_to_double for answer in answers),
        windows=_added_windows([answer.windows for answer in answers if answer.windows]),
    )


def _added(traffic: list[UpDown]) -> UpDown:
    return UpDown(sum(each.up for each in traffic), sum(each.down for each in traffic))


def _added_windows(parts: list[WindowsStatus]) -> WindowsStatus | None:
    if not parts:
        return None
    found: dict[str, IncompleteWindow] = {}
    for window in (window for part in parts for window in part.incomplete):
        before = found.get(window.start, window)
        waiting_for = sorted({*before.waiting_for, *window.waiting_for})
        found[window.start] = IncompleteWindow(window.start, window.end, waiting_for, max(before.lost, window.lost))
    youngest = sorted(found.values(), key=lambda window: datetime.fromisoformat(window.start))[-MAX_INCOMPLETE:]
    return msgspec.structs.replace(parts[0], incomplete=youngest)


def _windows_status(counter: RoundReader) -> WindowsStatus | None:
    windows, rule = counter.windows, counter.spec.windows
    if windows is None or rule is None:
        return None
    calendar = windows.calendar
    incomplete = [
        IncompleteWindow(
            start=calendar.local_time(window.start),
            end=calendar.local_time(window.end),
            waiting_for=windows.sites_waited_for(window.period),
            lost=window.lost,
        )
        for window in windows.youngest(MAX_INCOMPLETE)
        if window.state is WindowState.INCOMPLETE
    ]
    return WindowsStatus(calendar.per, calendar.tz, calendar.anchor, rule.floor, rule.windows_kept, incomplete)


def details(counter: RoundReader, history: History) -> dict[str, Any]:
    """For the page: everything except the sites, which have a table of their own."""
    answer = counter.published_answer
    return {
        "alpha": answer.alpha,
        "delta": answer.delta,
        "scheme": answer.scheme,
        "round": answer.round,
        "phase": counter.coordinator.phase,
        "sites": answer.sites,
        "silent": len(answer.silent),
        "cost": cost_summary(counter, history),
        "plan": plan_summary(counter),
        "windows": _windows_details(counter),
    }


def _windows_details(counter: RoundReader) -> dict[str, Any] | None:
    windows, rule = counter.windows, counter.spec.windows
    if windows is None or rule is None:
        return None
    calendar = windows.calendar
    waiting_for = windows.sites_waited_for(calendar.previous(calendar.period_at(windows.now())))
    return {
        "per": calendar.per,
        "tz": calendar.tz,
        "floor": rule.floor,
        "keep": rule.windows_kept,
        "waiting": len(waiting_for),
        "waiting_for": waiting_for[:MAX_NAMES],
    }


# Cost


def cost_summary(counter: RoundReader, history: History) -> dict[str, Any]:
    """Messages and bytes so far and in the next 24 hours, how old an answer may be, and how wrong: of this counter, and
    of one message per event or regular flushes instead.

    The size of such a message is that of the smallest frame with the counter's name and count. What flushes miss at
    worst is what arrives in a period at the average rate; in a burst it is more.
    """
    traffic, answer = counter.traffic, counter.published_answer
    known = counter.known_total
    events = known - traffic.counted_before
    rate = events / max(1.0, history.recorded_at - traffic.began)
    frame = len(next(encode_frames([Snapshot(counter.name, counter.published_answer.round, known)])))
    day = round(rate * DAY_S), reachable_sites(answer) * DAY_S
    others = [("one message per event", 0, events, day[0])]
    for period in FLUSH_PERIODS_S:
        so_far = flush_messages(events, history.site_seconds, period)
        others.append((f"flush every {period} s", period, so_far, flush_messages(*day, period)))
    return {
        "since": traffic.began,
        "events": events,
        "messages": traffic.up + traffic.down,
        "up": traffic.up,
        "bytes": round(traffic.up_bytes + traffic.down_bytes),
        "day": _messages_of_a_day(counter, rate, history.recorded_at),
        "error": max(answer.upper - answer.estimate, answer.estimate - answer.lower),
        "total": round(answer.estimate),
        "to_double": _messages_to_double(counter),
        "others": [
            {"name": name, "messages": sent, "bytes": sent * frame, "day": ahead, "age": age, "error": rate * age}
            for name, age, sent, ahead in others
        ],
    }


def _messages_of_a_day(counter: RoundReader, rate: float, now: float) -> int:
    """About so many in the next 24 hours: no total begins anew but those of windows, whose cost repeats."""
    traffic, events = counter.traffic, rate * DAY_S
    if counter.windows is not None:
        return round((traffic.up + traffic.down) * DAY_S / max(1.0, now - traffic.began))
    efolds = log1p(events / max(1, counter.known_total))
    return round(min(2 * events, _messages_per_efold(counter) * efolds))


def _messages_to_double(counter: RoundReader) -> int:
    return ceil(_messages_per_efold(counter) * log(2))


def _messages_per_efold(counter: RoundReader) -> float:
    planned: float | None = getattr(counter.coordinator.plan, "messages_per_efold", None)
    if planned is not None:
        return planned
    return plan_deterministic(max(1, counter.published_answer.sites), counter.spec.alpha).messages_per_efold


# Plan


def plan_summary(counter: RoundReader) -> dict[str, Any]:
    """The running plan, the costs of the candidates, and why this one runs."""
    answer, config = counter.published_answer, counter.spec
    running = counter.coordinator.plan or plan_deterministic(max(1, answer.sites), answer.alpha)
    prices = _prices(counter)
    return {
        "configured": config.scheme,
        "against": ADVERSARY_TEXT[config.adversary],
        "why": _why(counter, prices),
        "prices": [{"scheme": name, "messages_per_efold": price} for name, price in prices.items()],
        "reasons": [
            {"number": each.number, "value": float(each.value), "because": each.because}
            for each in getattr(running, "reasons", ())
        ],
    }


def _prices(counter: RoundReader) -> dict[str, float]:
    """Messages per e-fold of the total, by scheme: those that `auto` may choose and whose plan is computed already."""
    sites, alpha = max(1, counter.published_answer.sites), counter.spec.alpha
    prices = {"deterministic": plan_deterministic(sites, alpha).messages_per_efold}
    ahead = counter.next_context()
    if ahead is not None:
        prices |= counter.coordinator.scheme.prices(ahead)
    running = counter.coordinator.plan
    if running is not None:
        prices[counter.published_answer.scheme] = getattr(running, "messages_per_efold", 0.0)
    return dict(sorted(prices.items(), key=lambda item: item[1]))


def _why(counter: RoundReader, prices: dict[str, float]) -> str:
    scheme, config = counter.published_answer.scheme, counter.spec
    if config.scheme != Auto.name:
        return f"This counter is configured to run {config.scheme}."
    others = {name: price for name, price in prices.items() if name != scheme}
    cheapest = min(others, key=others.__getitem__, default=None)
    proof = f"with a proof against {ADVERSARY_TEXT[config.adversary]}"
    if scheme != "deterministic":
        return f"It is the cheapest scheme {proof} for this many sites and this total."
    if not counter.coordinator.scheme.needs_plan(counter.published_answer.sites):
        return f"For fewer than {MIN_SITES_TO_PLAN} sites no scheme {proof} is cheaper."
    if cheapest is None:
        return "It needs no plan. Plans of other schemes are being computed."
    if others[cheapest] < prices[scheme]:
        return f"{cheapest} will be cheaper, and replaces it in a later round if that pays for the change."
    return f"For this many sites and this total no scheme {proof} is cheaper."


# Sites


class SiteRow(NamedTuple):
    site: str
    state: str
    last_seen: float  # seconds since 1970
    known: int


_WORST_FIRST = ("silent", "away", "connected")
_KEYS = {
    "site": lambda row: row.site,
    "state": lambda row: (_WORST_FIRST.index(row.state), 0 if row.state == "connected" else row.last_seen, -row.known),
    "seen": lambda row: row.last_seen,
    "known": lambda row: row.known,
}
SITE_SORTS = tuple(_KEYS)


def site_rows(server: ServerView, counter: RoundReader, now: float) -> Iterator[SiteRow]:
    """Every incarnation that is a member of this counter, unsorted."""
    offset = now - server.now()
    for site_id, known in counter.coordinator.saved_state.known:
        session = server.sessions.get(site_id)
        if session is not None:
            yield SiteRow(str(site_id.site), session.state, session.last_seen + offset, known)


def site_page(rows: list[SiteRow], find: str, sort: str, start: int, length: int) -> tuple[int, list[SiteRow]]:
    """The number of sites with `find` in their name, and a page of them. A minus in front of `sort` reverses it."""
    wanted = find.casefold()
    found = [row for row in rows if wanted in row.site.casefold()] if wanted else rows
    found.sort(key=_KEYS[sort.removeprefix("-")], reverse=sort.startswith("-"))
    return len(found), found[start : start + length]
