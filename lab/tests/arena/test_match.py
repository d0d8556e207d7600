"""Matches: reproducible, the same in parallel, with an exact interval."""

import pytest

from countless.errors import InvalidParameter, UnknownName
from countless_lab.arena.match import Match, Setting, play, run, trace_of
from countless_lab.arena.registry import adversary_named
from countless_lab.arena.tournament import as_json, claimed, guarantee_violated, settings, unrandomised

SETTING = Setting("lattice", adversary_named("stop-after-jump"), 64, 0.1, 0.1, 5000)


def test_same_seed_gives_the_same_game() -> None:
    assert play(SETTING, 1) == play(SETTING, 1)
    assert play(SETTING, 1) != play(SETTING, 2)


def test_score_can_be_replayed_from_its_seed() -> None:
    (match,) = run([SETTING], 2, seed=9)
    assert [play(SETTING, score.seed) for score in match.scores] == list(match.scores)


def test_failure_rate_is_the_clopper_pearson_interval() -> None:
    score = play(SETTING, 1)
    assert score.violated_at is not None
    match = Match(SETTING, (score,) * 10)
    lower, upper = match.failure_rate
    assert lower == pytest.approx(0.05**0.1)
    assert upper == 1


def test_invalid_requests_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="trials"):
        run([SETTING], 0)
    with pytest.raises(UnknownName):
        Setting("nothing", adversary_named("uniform"), 4, 0.1, 0.1, 10)
    with pytest.raises(InvalidParameter, match="sites"):
        Setting("exact", adversary_named("uniform"), 0, 0.1, 0.1, 10)


def test_claimed_guarantees_follow_the_registry() -> None:
    def says(scheme: str, adversary: str, against: str = "adaptive") -> bool:
        return claimed(Setting(scheme, adversary_named(adversary), 4, 0.1, 0.1, 10, against))

    assert says("lattice", "uniform")
    assert not says("lattice", "stop-after-jump")
    assert says("dithered", "stop-after-jump")
    assert not says("dithered", "message-reader")
    assert says("sampled", "message-reader")
    assert says("deterministic", "message-reader")
    assert says("auto", "feedback")
    assert not says("auto", "message-reader")
    assert says("auto", "message-reader", "sees-everything")
    assert not says("leaking", "uniform")


def test_guarantee_is_violated_only_where_it_is_claimed() -> None:
    (match,) = run([SETTING], 3)
    assert match.failures == 3
    assert not guarantee_violated(match)  # lattice has no guarantee against it
    covered = Match(Setting("lattice", adversary_named("uniform"), 64, 0.1, 0.1, 5000), match.scores)
    assert guarantee_violated(covered)
    assert as_json(match, 0)["first_violation"]["seed"] == match.scores[0].seed


def test_all_gives_every_pair() -> None:
    base = {"sites": 4, "alpha": 0.1, "delta": 0.1, "events": 10}
    pairs = settings("all", "all", base)
    assert len(pairs) == len({(pair.scheme, pair.adversary.name) for pair in pairs}) == 10 * 14
    with pytest.raises(UnknownName):
        settings("lattice", "unheard-of", base)
    with pytest.raises(UnknownName, match="all"):
        settings("nothing", "all", base)


def test_path_ends_at_the_last_event() -> None:
    path = trace_of(SETTING, 1)
    assert path[-1].total == SETTING.events
    assert max(abs(point.error) for point in path) <= play(SETTING, 1).worst


@pytest.mark.parametrize(
    ("scheme", "sites", "events", "marked"),
    [
        ("partial_dp", 8, 20_000, True),  # its cheapest plan for so few sites has no noise
        ("partial_dp_paper", 4, 20_000, False),
        ("hyz", 8, 20, True),  # still exact
        ("hyz", 8, 20_000, False),
        ("deterministic", 8, 20_000, False),  # has no secrets
    ],
)
def test_matches_without_secrets_are_marked(scheme: str, sites: int, events: int, marked: bool) -> None:
    base = {"sites": sites, "alpha": 0.3, "delta": 0.05, "events": events}
    [match] = run(settings(scheme, "round-robin", base), 1, 1)
    assert unrandomised(match) is marked
    assert as_json(match, 1)["randomised"] is match.randomised
