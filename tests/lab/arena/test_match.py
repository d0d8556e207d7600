"""Matches: reproducible, the same in parallel, with an exact interval."""

import pytest

from countless.errors import InvalidParameter, UnknownName
from countless.lab.arena.match import Match, Setting, play, run, trace_of
from countless.lab.arena.registry import adversary_named
from countless.lab.arena.tournament import as_json, claimed, guarantee_violated, settings

SETTING = Setting("lattice", adversary_named("stop-after-jump"), 64, 0.1, 0.1, 5000)


def test_a_seed_gives_the_same_game_again_and_another_seed_another() -> None:
    assert play(SETTING, 1) == play(SETTING, 1)
    assert play(SETTING, 1) != play(SETTING, 2)


def test_a_score_can_be_replayed_from_its_seed() -> None:
    (match,) = run([SETTING], 2, seed=9)
    assert [play(SETTING, score.seed) for score in match.scores] == list(match.scores)


def test_the_interval_is_clopper_and_pearsons() -> None:
    score = play(SETTING, 1)
    assert score.violated_at is not None
    match = Match(SETTING, (score,) * 10)
    lower, upper = match.failure_rate
    assert lower == pytest.approx(0.05**0.1)
    assert upper == 1


def test_requests_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="trials"):
        run([SETTING], 0)
    with pytest.raises(UnknownName):
        Setting("nothing", adversary_named("uniform"), 4, 0.1, 0.1, 10)
    with pytest.raises(InvalidParameter, match="sites"):
        Setting("exact", adversary_named("uniform"), 0, 0.1, 0.1, 10)


def test_claims_follow_the_registry() -> None:
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


def test_a_breach_is_a_broken_promise_and_not_bad_luck() -> None:
    (match,) = run([SETTING], 3)
    assert match.failures == 3
    assert not guarantee_violated(match)  # nobody promised
    promised = Match(Setting("lattice", adversary_named("uniform"), 64, 0.1, 0.1, 5000), match.scores)
    assert guarantee_violated(promised)
    assert as_json(match, 0)["first_violation"]["seed"] == match.scores[0].seed


def test_all_means_all() -> None:
    base = {"sites": 4, "alpha": 0.1, "delta": 0.1, "events": 10}
    pairs = settings("all", "all", base)
    assert len(pairs) == len({(pair.scheme, pair.adversary.name) for pair in pairs}) == 9 * 12
    with pytest.raises(UnknownName):
        settings("lattice", "nobody", base)
    with pytest.raises(UnknownName, match="all"):
        settings("nothing", "all", base)


def test_a_path_ends_where_the_game_ends() -> None:
    path = trace_of(SETTING, 1)
    assert path[-1].total == SETTING.events
    assert max(abs(point.error) for point in path) <= play(SETTING, 1).worst
