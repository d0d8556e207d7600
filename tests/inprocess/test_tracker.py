"""`Tracker`: calls, answers, listeners, and refused input."""

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import pytest

from countless import Answer, InvalidParameter, Tracker
from countless.core.answer import State
from countless.errors import PlanError, UnknownName
from countless.inprocess.world import Traffic
from countless.planning.oblivious import plan_lattice
from countless.schemes.lattice import Lattice
from countless.schemes.registry import SchemeName


def test_tracker_in_six_lines() -> None:
    tracker = Tracker(sites=1000, alpha=0.01)
    tracker.site(3).add()
    tracker.site(7).add(41)
    assert tracker.answer.estimate == tracker.total == 42
    assert tracker.answer.lower <= 42 <= tracker.answer.upper


def test_answer_of_a_new_tracker() -> None:
    answer = Tracker(sites=4, alpha=0.1, delta=0.02, scheme="lattice", seed=1).answer
    assert (answer.alpha, answer.delta, answer.sites, answer.round) == (0.1, 0.02, 4, 0)
    assert (answer.scheme, answer.state, answer.silent) == ("lattice", State.EXACT, ())


def test_sites_may_have_names() -> None:
    tracker = Tracker(sites=["berlin", "lima", 7, "7"], alpha=0.1)
    tracker.site("lima").add(3)
    tracker.site("7").add(4)
    tracker.site(7).add(5)
    assert tracker.sites == ("berlin", "lima", 7, "7")
    assert [tracker.site(name).count for name in tracker.sites] == [0, 3, 5, 4]


def test_tracker_may_start_without_sites() -> None:
    tracker = Tracker(sites=[], alpha=0.1)
    assert tracker.answer.estimate == 0
    tracker.add_site().add(3)
    assert (tracker.sites, tracker.answer.estimate) == ((0,), 3)


def test_added_site_gets_the_next_free_number() -> None:
    tracker = Tracker(sites=[0, 2, 3], alpha=0.1)
    tracker.add_site()
    tracker.add_site("x")
    assert tracker.sites == (0, 2, 3, 4, "x")


def test_removed_site_stays_in_the_total() -> None:
    tracker = Tracker(sites=3, alpha=0.1)
    old = tracker.site(1)
    old.add(3)
    assert tracker.remove_site(1) == 3
    assert (tracker.total, tracker.answer.estimate, tracker.sites) == (3, 3, (0, 2))
    with pytest.raises(InvalidParameter, match="has not been removed"):
        old.add()
    with pytest.raises(UnknownName, match="site"):
        tracker.site(1)
    tracker.add_site(1).add(2)
    assert (tracker.total, tracker.site(1).count, old.count) == (5, 2, 3)


class TestListeners:
    def test_listener_is_called_for_every_change_only(self) -> None:
        tracker, received = Tracker(sites=3, alpha=0.2, scheme="deterministic"), list[float]()
        tracker.on_change(lambda answer: received.append(answer.estimate))
        for event in range(500):
            tracker.site(event % 3).add()
        assert received == sorted(set(received))
        assert received[-1] == tracker.answer.estimate
        assert received[0] == 1

    def test_on_change_is_a_decorator(self) -> None:
        tracker, received = Tracker(sites=1, alpha=0.2), list[Answer]()

        @tracker.on_change
        def listen(answer: Answer) -> None:
            received.append(answer)

        tracker.site(0).add(3)
        assert received == [tracker.answer]
        listen(received[0])

    @pytest.mark.parametrize("scheme", ["exact", "deterministic", "dithered", "partial_dp", "sampled"])
    def test_listener_that_adds_events_is_an_adaptive_stream(self, scheme: SchemeName) -> None:
        """Each change causes events at a site it did not come from, until 3,000 events; delta = 1e-9."""
        tracker, total = Tracker(sites=5, alpha=0.2, delta=1e-9, scheme=scheme, seed=1), 0
        received = list[float]()

        @tracker.on_change
        def feed_back(answer: Answer) -> None:
            nonlocal total
            received.append(answer.estimate)
            if total < 3_000:
                total += 1
                tracker.site(len(received) % 5).add()

        for event in range(2_000):
            total += 1
            tracker.site(event % 5).add()
            assert abs(tracker.answer.estimate - total) <= 0.2 * total
        assert tracker.total == total
        assert received == sorted(set(received))
        assert received[-1] == tracker.answer.estimate

    def test_listener_may_add_and_remove_sites(self) -> None:
        tracker = Tracker(sites=2, alpha=0.2, seed=1)

        @tracker.on_change
        def scale(answer: Answer) -> None:
            if answer.estimate >= 100 and len(tracker.sites) < 5:
                tracker.add_site()
            if answer.estimate >= 1000 and 1 in tracker.sites:
                tracker.remove_site(1)

        for _ in range(500):
            tracker.site(0).add(3)
        assert len(tracker.sites) in (4, 5)
        assert 1 not in tracker.sites

    def test_failing_listener_does_not_change_the_count(self) -> None:
        tracker, failing = Tracker(sites=1, alpha=0.2, scheme="exact"), [True]

        @tracker.on_change
        def complain(answer: Answer) -> None:
            if failing[0]:
                raise RuntimeError("no")

        with pytest.raises(RuntimeError):
            tracker.site(0).add(2)
        failing[0] = False
        tracker.site(0).add()
        assert tracker.total == tracker.answer.estimate == 3


def test_messages_count_the_traffic_in_both_directions() -> None:
    tracker = Tracker(sites=2, alpha=0.1, scheme="exact", counter="c")
    tracker.site(0).add(3)
    assert tracker.messages == Traffic(up=1, down=0, bytes=None)
    assert (tracker.messages.total, tracker.messages.words) == (1, 1)


def test_message_bytes_are_counted_on_request() -> None:
    tracker = Tracker(sites=2, alpha=0.1, scheme="exact", counter="c", count_bytes=True)
    assert tracker.messages.bytes == 0
    tracker.site(0).add(3)
    assert tracker.messages == Traffic(up=1, down=0, bytes=7)


def test_repr_of_a_tracker() -> None:
    tracker = Tracker(sites=2, alpha=0.1, delta=0.02, scheme="exact", counter="hits")
    tracker.site(0).add(1234)
    assert repr(tracker) == (
        "<Tracker 'hits' (exact, alpha 0.1, delta 0.02): 1,234 (from 1,234 to 1,234; exact, exact, round 0, 2 sites); "
        "1 messages>"
    )


def test_runs_with_the_same_seed_are_equal() -> None:
    """Two unseeded runs agree with probability below 1e-12: about 20 secret offsets of at least 10 values each."""

    def traffic(seed: int | None) -> Traffic:
        tracker = Tracker(sites=20, alpha=0.3, scheme="lattice", seed=seed)
        for event in range(20_000):
            tracker.site(event % 20).add()
        return tracker.messages

    assert traffic(4) == traffic(4)


NOT_ALLOWED: dict[tuple[str, str], list[Any]] = {
    ("alpha", "a number (int or float) between 0 and 1/2"): [
        Fraction(1, 100),
        0,
        0.5,
        1,
        -0.1,
        float("nan"),
        float("inf"),
        10**400,
        "0.1",
        None,
        True,
        [0.1],
    ],
    ("delta", "between 0 and 1"): [0, 1, -1, float("nan"), 10**400, "0.1", None, True],
    ("scheme", "one of: auto, exact"): ["fast", "", None, 3, []],
    ("adversary", "one of: oblivious"): ["nice", "", None, 3, []],
    ("counter", "a string"): [None, 3, b"hits"],
    ("seed", "an integer"): [1.5, "7", True],
    ("sites", "a number of sites"): [None, 2.5, "abc", b"ab", True],
    ("sites", "at least 1"): [-1],
    ("sites", "all differ"): [["a", "b", "a"]],
}
BAD = [(name, value, allowed) for (name, allowed), values in NOT_ALLOWED.items() for value in values]


@pytest.mark.parametrize(("parameter", "value", "allowed"), BAD, ids=lambda value: str(value)[:20])
def test_invalid_argument_error_names_parameter_value_and_range(parameter: str, value: Any, allowed: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        Tracker(**{parameter: value})
    text = str(refused.value)
    assert text.startswith(f"{parameter} = {value!r} is not allowed")
    assert allowed in text


@pytest.mark.parametrize("name", [None, 1.5, True, ["a"]])
def test_site_name_must_be_a_string_or_an_integer(name: Any) -> None:
    with pytest.raises(InvalidParameter, match="a string or an integer"):
        Tracker(sites=[name], alpha=0.1)


def state(tracker: Tracker) -> tuple[object, ...]:
    counts = [tracker.site(name).count for name in tracker.sites]
    return (tracker.answer, tracker.total, tracker.messages, tracker.sites, counts)


REFUSED: dict[str, Callable[[Tracker], object]] = {
    "a negative batch": lambda tracker: tracker.site(0).add(-1),
    "a fraction of an event": lambda tracker: tracker.site(0).add(0.5),  # type: ignore[arg-type]
    "a batch that is a boolean": lambda tracker: tracker.site(0).add(True),
    "a batch that is text": lambda tracker: tracker.site(0).add("1"),  # type: ignore[arg-type]
    "a batch beyond all numbers": lambda tracker: tracker.site(0).add(10**400),
    "a listener that is none": lambda tracker: tracker.on_change(None),  # type: ignore[arg-type]
    "an unknown site": lambda tracker: tracker.site("unknown"),
    "an unhashable site": lambda tracker: tracker.site([]),  # type: ignore[arg-type]
    "removing an unknown site": lambda tracker: tracker.remove_site("unknown"),
    "adding a name that is taken": lambda tracker: tracker.add_site(0),
    "adding a name that is none": lambda tracker: tracker.add_site(2.5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("attempt", REFUSED.values(), ids=REFUSED.keys())
def test_refused_call_changes_nothing(attempt: Callable[[Tracker], object]) -> None:
    tracker = Tracker(sites=3, alpha=0.1, seed=1)
    tracker.site(0).add(100)
    before = state(tracker)
    with pytest.raises(InvalidParameter):
        attempt(tracker)
    assert state(tracker) == before


def names(count: int) -> Iterable[str]:
    return (f"s{number}" for number in range(count))


class TestGivenPlan:
    def test_given_plan_is_used(self) -> None:
        plan = plan_lattice(8, 0.2, 1e-9)
        tracker = Tracker(sites=names(5), alpha=0.2, scheme=Lattice(plan), seed=1)
        tracker.site("s0").add(10_000)
        tracker.site("s1").add(10_000)
        assert tracker.plan is plan
        assert tracker.answer.scheme == "lattice"

    def test_given_plan_may_fill_all_its_slots(self) -> None:
        """After joins the next round wants spare slots; a given plan without spare slots is still used."""
        tracker = Tracker(sites=5, alpha=0.2, scheme=Lattice(plan_lattice(8, 0.2, 1e-9)), seed=1)
        tracker.site(0).add(10_000)
        for _ in range(3):
            tracker.add_site()
        for _ in range(200):
            for site in range(8):
                tracker.site(site).add(100)
        assert abs(tracker.answer.estimate - 170_000) <= 34_000

    def test_more_sites_than_the_given_plan_are_refused_and_change_nothing(self) -> None:
        tracker = Tracker(sites=5, alpha=0.2, scheme=Lattice(plan_lattice(5, 0.2, 1e-9)), seed=1)
        tracker.site(0).add(10_000)
        before = state(tracker)
        with pytest.raises(PlanError, match="5 sites"):
            tracker.add_site()
        assert state(tracker) == before
        tracker.site(1).add(10_000)
        assert tracker.total == 20_000
