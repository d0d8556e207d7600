"""Coordinators in states that many tests start from: sites a, b, c, and every message by hand."""

from countless.core.answer import State
from countless.core.coordinator import Coordinator, PersistentCounter
from countless.core.messages import SetTrigger, SiteId
from countless.randomness import SeededRandom
from countless.schemes.deterministic import Deterministic
from countless.schemes.exact import Exact
from support.schemes import Plain
from support.worlds import COUNTER, down, report, requested

A, B, C, D = (SiteId(name) for name in "abcd")


def coordinator(
    scheme: Plain | Exact | Deterministic, *fleet: SiteId, saved_state: PersistentCounter | None = None
) -> Coordinator:
    return Coordinator(COUNTER, scheme, SeededRandom(1), alpha=0.1, delta=0.1, fleet=fleet, saved_state=saved_state)


def in_round_one(kind: str = "blocks", **numbers: int) -> Coordinator:
    """a, b, c at 50, 30, 20 and all in round 1, every trigger sent."""
    made = coordinator(Plain(kind, start=100, **numbers), A, B, C)
    made.receive(A, report(50, 50))
    made.receive(B, report(30, 30))
    assert made.receive(C, report(20, 20)) == []  # all counts are known exactly: no snapshot is requested
    for site_id in (A, B, C):
        count = made.reported_by(site_id)
        assert down(made.receive(site_id, report(count + 1, 51)), SetTrigger) == [site_id.site]
    assert (made.round, made.known_total) == (1, 100)
    return made


def in_round_two(kind: str = "blocks", reports: int = 2) -> Coordinator:
    """As above, and a report of a's ends round 1: snapshots of all three are requested."""
    made = in_round_one(kind, reports=reports, step=10)
    for crossing in range(1, reports + 1):
        outbox = made.receive(A, report(50 + 10 * crossing, crossing, round=1))
    assert requested(outbox) == ["a", "b", "c"]
    assert (made.round, made.answer.state) == (2, State.LEARNING)
    return made


def facts(made: Coordinator) -> tuple[object, ...]:
    """Everything about a coordinator that an input could change."""
    state = made.debug_state()
    entries = [
        (e.site_id, e.reported, e.round_start, e.crossings, e.slot, e.round_state, e.presence)
        for e in state.entries.values()
    ]
    return (state._replace(entries={}), entries, state.estimator.estimate, made.saved_state)
