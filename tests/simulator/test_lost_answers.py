"""Real clients whose answers do not arrive, although their connections hold: each is timed out, and comes back."""

from collections import Counter

import pytest

from countless.core.messages import SiteId, Snapshot
from countless.errors import InvariantBroken
from countless.server.connection import Connection
from countless.server.sessions.awaited_answers import AwaitedAnswers
from countless.server.sessions.session_table import Session
from countless.server.site_server import SiteServer
from countless.wire.families import FamilySync
from countless.wire.frames import UpItem
from simulator.trial import Trial

LOST = 4  # of each process, so that the world can become quiet


def lose_answers(patch: pytest.MonkeyPatch) -> Counter[SiteId]:
    """How many of each process were lost: its first ones."""
    original, lost = SiteServer.on_frame, Counter[SiteId]()

    def on_frame(self: SiteServer, session: Session, connection: Connection, items: list[UpItem], size: int) -> None:
        kept: list[UpItem] = []
        for item in items:
            if isinstance(item, Snapshot | FamilySync) and lost[session.site_id] < LOST:
                lost[session.site_id] += 1
            else:
                kept.append(item)
        original(self, session, connection, kept, size)

    patch.setattr(SiteServer, "on_frame", on_frame)
    return lost


def run_seeds(profile: str, seeds: int) -> None:
    for seed in range(seeds):
        Trial.drawn(seed, profile, "memory").run()


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["counters", "families", "everything", "windows"])
def test_sites_whose_answers_are_lost_are_timed_out_and_come_back(
    profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = lose_answers(monkeypatch)
    run_seeds(profile, 3)
    assert lost.total() > 10


@pytest.mark.slow
def test_sites_whose_answers_are_lost_come_back_to_several_coordinators(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = lose_answers(monkeypatch)
    Trial.drawn(0, "counters", "cluster").run()
    assert lost


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["counters", "families"])
def test_without_the_deadline_some_seed_finds_an_answer_that_stays_learning(
    profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_answers(monkeypatch)
    monkeypatch.setattr(AwaitedAnswers, "is_late", lambda *args: False)
    with pytest.raises(InvariantBroken, match="not quiet"):
        run_seeds(profile, 20)
