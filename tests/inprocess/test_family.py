"""`Family`: every label beside its exact count after every event, with sites that come and go; the cost."""

from collections import Counter
from fractions import Fraction
from itertools import count
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

import countless
from countless.core.answer import State
from countless.core.family.rule import CertainSteps
from countless.errors import InvalidParameter, NoWindows
from countless.inprocess.budget import Budget
from countless.inprocess.family import Family
from countless_lab.simulation.labels import zipf_labels

START = 1_763_002_800.0  # the beginning of an hour
EVENTS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from("abcdef"), st.sampled_from([0, 1, 1, 2, 9, 100])), max_size=150
)


class Double(float):
    """A number whose `repr` is not that of a double, as numpy's."""

    def __repr__(self) -> str:
        return f"Double({super().__repr__()})"


def test_numbers_of_other_libraries_are_read_as_decimals() -> None:
    family = Family(sites=1, epsilon=Double(0.25))
    family.site(0).add("a", 7)
    family.site(0).add("b", 93)
    assert [each.label for each in family.top(Double(0.07)).labels] == ["b", "a"]
    assert Budget(limit=100, sites=1, slack=Double(0.07)).site(0).take(93)


@given(EVENTS, st.sampled_from([0.02, 0.1, 0.3, 0.49]), st.lists(st.integers(0, 150), max_size=6))
def test_every_label_is_within_epsilon_after_every_event(
    events: list[tuple[int, str, int]], epsilon: float, churn: list[int]
) -> None:
    """Sites come and go: `churn` are the events at which the next site joins, or leaves if it has joined."""
    family, truth, exact = Family(sites=2, epsilon=epsilon), Counter[str](), Fraction(repr(epsilon))
    for number, (index, label, n) in enumerate(events):
        if number in churn:
            site = 2 + churn.index(number) % 3
            if site in family.sites:
                family.remove_site(site)
            else:
                family.add_site(site)
        names = family.sites
        family.site(names[index % len(names)]).add(label, n)
        truth[label] += n
        total = truth.total()
        assert family.total().contains(total)
        assert abs(family.total().estimate - total) <= exact * total
        for each in "abcdef":
            answer = family.answer(each)
            assert answer.contains(truth[each])
            assert answer.upper - answer.lower <= Fraction(3, 4) * exact * total
        check_top(family, truth, Fraction(1, 8), exact)
        check_top(family, truth, Fraction(1, 2), exact * Fraction(7, 4))


def check_top(family: Family, truth: Counter[str], share: Fraction, below: Fraction) -> None:
    listed = {each.label for each in family.top(float(share)).labels}
    if share >= below:
        assert listed >= {label for label, count in truth.items() if count and count >= share * truth.total()}
    assert all(truth[label] >= (share - below) * truth.total() for label in listed if label is not None)


@pytest.mark.soak
def test_a_million_events_of_ten_thousand_labels_cost_few_messages() -> None:
    family, truth = Family(sites=100, epsilon=0.01), Counter[str]()
    sites = [family.site(name) for name in family.sites]
    for site, label in zipf_labels(sites=100, labels=10_000, events=1_000_000, seed=1):
        sites[site].add(label)
        truth[label] += 1
    assert family.messages.total <= 60_000
    assert family.total().contains(1_000_000)
    wrong = [label for label, count in truth.items() if not family.answer(label).contains(count)]
    assert not wrong
    heavy = {label for label, count in truth.items() if count >= 20_000}
    listed = {str(each.label) for each in family.top(share=0.02).labels}
    assert heavy <= listed
    assert min(truth[label] for label in listed) >= 10_000


def test_total_and_top_hold_while_sites_count_labels_that_are_new_in_each_round() -> None:
    """No label of theirs has grown by a step when the steps rise, so they send nothing then. That must not make them
    forget how much they hold back in all: the total was wrong by six times epsilon.
    """
    epsilon, names = Fraction(1, 100), range(20)
    family, truth, fresh = Family(sites=names, epsilon=float(epsilon)), Counter[str](), count()

    def add(site: int, label: str, n: int) -> None:
        family.site(site).add(label, n)
        truth[label] += n

    for label, n in (("heavy", 1_700), ("hot", 18_300)):
        add(0, label, n)
    told, worst = 0, Fraction(0)
    while truth.total() < 50_000:
        steps = CertainSteps(float(epsilon)).steps(family.total().lower, len(names))
        if family.messages.down > told:
            told = family.messages.down
            for site in names[1:]:
                for n in (steps.label - 1, steps.label - 1, steps.total - 1 - 2 * (steps.label - 1)):
                    add(site, f"label-{next(fresh)}", n)
        add(0, "hot", steps.total)
        add(0, "heavy", max(0, truth.total() * 9 // 100 - truth["heavy"]))
        check_top(family, truth, Fraction(1, 10), epsilon * Fraction(95, 100))
        answer = family.total()
        assert answer.contains(truth.total())
        worst = max(worst, abs(Fraction(answer.estimate) - truth.total()) / (epsilon * truth.total()))
    assert Fraction(8, 10) < worst <= 1


def test_departed_site_leaves_its_exact_counts() -> None:
    family = Family(sites=2, epsilon=0.2)
    for number in range(1000):
        family.site(number % 2).add(f"label-{number % 7}")
    assert family.total().lower < family.total().upper
    assert family.remove_site(0) == 500
    family.remove_site(1)
    assert family.state is State.EXACT
    assert {family.answer(f"label-{number}").estimate for number in range(7)} == {142, 143}
    assert family.total().estimate == 1000


def test_name_of_a_removed_site_can_be_used_again() -> None:
    family = Family(sites=1)
    before = family.site(0)
    before.add("x", 3)
    family.remove_site(0)
    family.add_site(0).add("x", 4)
    assert family.answer("x").estimate == 7
    with pytest.raises(InvalidParameter, match="not removed"):
        before.add("x")
    assert family.answer("x").estimate == 7


def test_sites_that_join_one_by_one_cost_few_messages() -> None:
    family = Family(sites=1, epsilon=0.01)
    family.site(0).add("x", 1_000_000)
    before = family.messages.total
    for _ in range(99):
        family.add_site().add("x", 1000)
    answer = family.answer("x")
    assert answer.contains(1_099_000)
    assert answer.upper - answer.lower <= 10_990
    assert family.messages.total - before < 3_000


def test_overflow_keeps_the_total_and_the_bounds() -> None:
    family = Family(sites=["a"], epsilon=0.1, label_cap=2)
    for label, n in (("x", 5), ("y", 5), ("z", 90), ("x", 5)):
        family.site("a").add(label, n)
    assert family.total().contains(105)
    assert family.overflow.contains(90)
    assert family.answer("z").contains(90)
    assert family.answer("x").contains(10)


def test_windows_are_families_of_their_own_and_the_last_one_is_exact() -> None:
    now = [START]
    family = Family(sites=3, epsilon=0.1, per="hour", clock=lambda: now[0])
    site = family.site(0)
    for number in range(9_000):
        now[0] = START + number
        family.site(number % 3).add(f"label-{number % 4}")
        site.add("bulk", 2)
    assert family.total("last").contains(3 * 3600)
    assert family.total("now").contains(3 * 1800)
    assert [family.answer(f"label-{number}", "last").estimate for number in range(4)] == [900] * 4
    assert family.top(0.5, "last").labels[0].estimate == 7200
    before = family.messages.total
    now[0] = START  # the clock is put back: events stay in the last window that it has shown
    site.add("late")
    assert family.answer("late").upper >= 1
    now[0] = START + 100_000
    assert family.total("now").upper == family.total("last").upper == 0
    assert family.messages.total >= before


def test_removed_site_stays_removed_in_the_next_window() -> None:
    now = [START]
    family = Family(sites=2, per="hour", clock=lambda: now[0])
    removed = family.site(0)
    removed.add("x")
    family.remove_site(0)
    now[0] += 3600
    with pytest.raises(InvalidParameter, match="not removed"):
        removed.add("x")
    assert family.sites == (1,)
    family.add_site(0).add("x")
    with pytest.raises(InvalidParameter, match="not removed"):
        removed.add("x")
    assert family.total("last").estimate == family.total("now").estimate == 1


def test_window_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="now or last"):
        Family().top(0.1, "yesterday")
    with pytest.raises(NoWindows):
        Family().total("last")


def test_threads_lose_no_event() -> None:
    family = Family(sites=4, epsilon=0.05)

    def work(name: int) -> None:
        site = family.site(name)
        for number in range(2_000):
            site.add(f"label-{number % 3}")

    threads = [Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in range(4):
        family.remove_site(name)
    assert family.total().estimate == 8_000


def test_family_is_a_name_of_the_package() -> None:
    assert countless.Family is Family
    assert "0 messages" in repr(Family())


@pytest.mark.parametrize(
    "arguments",
    [
        {"sites": -1},
        {"epsilon": 0},
        {"name": 3},
        {"label_cap": -1},
        {"per": "week"},
        {"tz": "Europe/Berlin"},
        {"clock": 3},
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter):
        Family(**arguments)  # type: ignore[arg-type]
