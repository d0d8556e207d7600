"""Production clients and coordinators in a world that fails: seeds that must pass, and mistakes that they must find.

A failure prints the command that repeats it.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from countless.client.families.local_family import LocalFamily
from countless.client.kinds.counter import CounterMember
from countless.client.kinds.family import FamilyMember
from countless.client.kinds.member import Known
from countless.client.local_counter import LocalCounter
from countless.client.session.members import SessionMembers
from countless.client.session.protocol import SiteSession
from countless.client.session.windows import SessionWindows
from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.messages import PersistentFamily, Steps
from countless.core.messages import SiteId
from countless.core.periods.site import SitePeriods
from countless.errors import InvariantBroken, ProtocolError
from countless.schemes.sampled import Sampled
from countless.server import site_server
from countless.server.kinds.family import TrackedFamily
from countless.server.sessions.members import Members
from countless.server.site_server import SiteServer
from countless.server.storage.commit import Batch, CommitPipeline
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.rows import Publish, Rows
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.families import KnownFamily
from countless.wire.frames import IncarnationExpired, IncarnationRetired
from simulator import outcomes
from simulator.runs import Run
from simulator.trial import PROFILES, Trial
from support import cluster_mutants, copy_mutants, fork_mutants, refilled_mutants, restore_mutants, session_mutants

SEEDS = 64  # `make soak` has 100,000
PARTS = 4


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_seeds_pass(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        Trial.drawn(seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["budgets", "windows", "families", "windows of families"])
def test_every_kind_is_taken_over(profile: str) -> None:
    """Several coordinators behind a broker, of which each is killed now and then."""
    for seed in range(4):
        Trial.drawn(seed, profile, "cluster").run()


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["rolling budgets", "budgets with periods"])
def test_budgets_keep_their_limit_and_can_be_spent_to_the_last(profile: str) -> None:
    for seed in range(12):
        Trial.drawn(seed, profile).run()


@pytest.mark.soak
@pytest.mark.parametrize("profile", ["rolling budgets", "budgets with periods"])
def test_budgets_keep_their_limit_in_many_runs(profile: str) -> None:
    for seed in range(12, 600):
        Trial.drawn(seed, profile)._replace(actions=100).run()


def test_seeds_on_several_cores_name_the_command_of_a_failure(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = Run(range(22), "counters", "memory", actions=5)
    assert run.on_cores(2).failures == []
    retires_with_nothing(monkeypatch)
    found = Run(range(1), "counters", "memory", actions=100).on_cores(2)
    assert len(found.failures) == 1
    assert found.digests == {0: outcomes.FAILED}
    assert "--seed 0 --profile 'counters' --store memory --actions 100" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_same_seed_repeats_every_message(profile: str) -> None:
    assert Trial.drawn(3, profile).run() == Trial.drawn(3, profile).run()


def test_seed_does_not_depend_on_plans_of_earlier_seeds() -> None:
    trial = Trial.drawn(14, "counters", "memory")._replace(scheme="sampled")
    for cache in Sampled.caches:
        cache.forget()
    cold = trial.run()
    assert trial.run() == cold


@pytest.mark.soak
def test_every_kind_of_fault_happens() -> None:
    seen: Counter[str] = Counter()
    for profile in ("everything", "wrong clocks", "small frames", "families", "windows of families"):
        for seed in range(4):
            seen += Trial.drawn(seed, profile, "memory")._replace(actions=100).run().seen
    expected = {"IncarnationRetired", "IncarnationExpired", "KnownCounts", "LeaveAck", "StartRound", "Quota"}
    assert expected | {"KnownLabels", "FamilyLeaveAck", "FamilyResend", "FamilySteps", "LabelCap"} <= seen.keys()


# Mistakes


def forgets_to_split_known_counts(patch: pytest.MonkeyPatch) -> None:
    """What a process with many counters is told is one item, larger than a frame."""

    def one_item(known: Iterable[tuple[str, int]], least: int, max_bytes: int) -> list[IncarnationRetired]:
        return [IncarnationRetired(tuple(known))]

    patch.setattr(site_server, "retired_items", one_item)


def refuses_incarnations_before_a_clock(patch: pytest.MonkeyPatch) -> None:
    """The horizon is what the coordinator's clock has shown, and a process that is before it is refused."""

    def prune(self: MemoryStore, before: int) -> None:
        self._tombstones = {
            site_id: rows
            for site_id, rows in self._tombstones.items()
            if any(second >= before for _, second in rows.values())
        }
        self._horizon = before

    def prune_file(self: SqliteStore, before: int) -> None:
        self._db.execute("DELETE FROM gone WHERE ended < ?", (before,))
        self._db.execute("INSERT OR REPLACE INTO facts VALUES ('pruned before', ?)", (before,))

    def expired(self: SiteSession, item: IncarnationExpired) -> Exception:
        return ProtocolError("this incarnation is older than the tombstones that are kept: start a new one")

    patch.setattr(MemoryStore, "_prune", prune)
    patch.setattr(SqliteStore, "_prune", prune_file)
    patch.setattr(SiteSession, "_expired", expired)


def sends_before_it_saves(patch: pytest.MonkeyPatch) -> None:
    original = CommitPipeline._take_batch

    def take_batch(self: CommitPipeline) -> Batch:
        batch = original(self)
        for connection, items in batch.outgoing.items():
            connection.send(items)
        batch.outgoing.clear()
        return batch

    patch.setattr(CommitPipeline, "_take_batch", take_batch)


def retires_without_a_tombstone(patch: pytest.MonkeyPatch) -> None:
    def tombstones(self: SiteServer, site_id: SiteId) -> tuple[tuple[tuple[str, int], ...], int]:
        return (), 0

    patch.setattr(SiteServer, "_read_tombstones", tombstones)


def forgets_what_is_known_of_a_retired_incarnation(patch: pytest.MonkeyPatch) -> None:
    original = SessionMembers.renew
    patch.setattr(SessionMembers, "renew", lambda self, site_id, known: original(self, site_id, Known()))


def does_not_send_again_after_a_lost_connection(patch: pytest.MonkeyPatch) -> None:
    original = CounterMember.join
    patch.setattr(CounterMember, "join", lambda self: original(self) if self.sent is None else [])


def retires_with_nothing(patch: pytest.MonkeyPatch) -> None:
    """A session that is given up leaves its counters, but no tombstone is saved."""
    patch.setattr(Members, "lose", lambda self, session, keys, lost=True: None)


# Of windows


def counts_in_finished_windows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SitePeriods, "present_at", lambda self, now: self.calendar.period_at(now))


def forgets_finished_windows(patch: pytest.MonkeyPatch) -> None:
    """They are not delivered."""
    patch.setattr(SessionWindows, "finish", lambda self, names: None)


def forgets_what_was_finished_on_the_last_stream(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SessionWindows, "new_stream", lambda self: None)


def sends_a_window_again_that_the_retired_incarnation_has_left(patch: pytest.MonkeyPatch) -> None:
    original = CounterMember.renew
    patch.setattr(CounterMember, "renew", lambda self, site_id, known, complete: original(self, site_id, known, False))


def counts_twice_at_the_edge_of_a_window(patch: pytest.MonkeyPatch) -> None:
    """The first events after the edge are added to the window that has ended as well."""
    original = SitePeriods.enter

    def enter(self: SitePeriods[LocalCounter], now: float) -> LocalCounter:
        before = self.states.get(self.period)
        local = original(self, now)
        if before is not None and before is not local:
            before.add_with_lock(1, 0)
        return local

    patch.setattr(SitePeriods, "enter", enter)


def leaves_before_earlier_windows(patch: pytest.MonkeyPatch) -> None:
    original = SessionWindows.finish

    def finish(self: SessionWindows, names: object) -> None:
        original(self, names)  # type: ignore[arg-type]
        for finished in self._finished.values():
            finished.reverse()

    patch.setattr(SessionWindows, "finish", finish)


def counts_labels_again_as_a_new_incarnation(patch: pytest.MonkeyPatch) -> None:
    original = LocalFamily.renew
    patch.setattr(LocalFamily, "renew", lambda self, known: original(self, None))


def forgets_labels_of_a_retired_incarnation(patch: pytest.MonkeyPatch) -> None:
    everything = KnownFamily(complete=True)
    original = LocalFamily.renew
    patch.setattr(LocalFamily, "renew", lambda self, known: original(self, everything))


def shows_labels_before_they_are_saved(patch: pytest.MonkeyPatch) -> None:
    original = TrackedFamily.take

    def take(self: TrackedFamily, rows: Rows) -> Publish:
        publish = original(self, rows)
        publish()
        return publish

    patch.setattr(TrackedFamily, "take", take)


def forgets_steps_of_families_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    original = FamilyCoordinator._load

    def load(self: FamilyCoordinator, saved: PersistentFamily) -> None:
        members = {site_id: member._replace(steps=Steps()) for site_id, member in saved.members.items()}
        original(self, saved._replace(members=members))

    patch.setattr(FamilyCoordinator, "_load", load)


def sends_a_window_of_a_family_again_that_the_retired_incarnation_has_left(patch: pytest.MonkeyPatch) -> None:
    original = FamilyMember.renew
    patch.setattr(FamilyMember, "renew", lambda self, site_id, known, complete: original(self, site_id, known, False))


def forgets_labels_of_windows_that_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FamilyCoordinator, "absorb", lambda *_: None)


def drops_labels_of_a_window_and_saves_it_later(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TrackedFamily, "mark_labels", lambda *_: None)


# With a seed that finds it today. If the runs change, others are tried.
MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], str, int]] = [
    (forgets_to_split_known_counts, "small frames", 2),
    (refuses_incarnations_before_a_clock, "wrong clocks", 1),
    (sends_before_it_saves, "dying coordinator", 9),
    (retires_without_a_tombstone, "counters", 1),
    (forgets_what_is_known_of_a_retired_incarnation, "counters", 1),
    (does_not_send_again_after_a_lost_connection, "counters", 8),
    (retires_with_nothing, "counters", 0),
    (session_mutants.does_not_see_that_the_last_forgotten_incarnation_has_expired, "wrong clocks", 1),
    (session_mutants.sends_everything_again_when_it_has_expired, "wrong clocks", 1),
    (session_mutants.ends_the_new_connection_with_the_old_one, "counters", 1),
    (session_mutants.accepts_frames_of_a_replaced_connection, "families", 56),
    (session_mutants.counts_units_again_that_are_handed_in_again, "everything", 1),
    (session_mutants.holds_units_that_are_not_in_the_file, "everything", 1),
    (counts_in_finished_windows, "windows", 16),
    (counts_twice_at_the_edge_of_a_window, "windows", 0),
    (forgets_finished_windows, "windows", 0),
    (forgets_what_was_finished_on_the_last_stream, "windows", 6),
    (sends_a_window_again_that_the_retired_incarnation_has_left, "windows", 2),
    (leaves_before_earlier_windows, "windows", 209),
    (counts_labels_again_as_a_new_incarnation, "families", 1),
    (forgets_labels_of_a_retired_incarnation, "families", 0),
    (shows_labels_before_they_are_saved, "families", 6),
    (forgets_steps_of_families_at_a_restart, "families", 0),
    (sends_a_window_of_a_family_again_that_the_retired_incarnation_has_left, "windows of families", 25),
    (forgets_labels_of_windows_that_are_not_kept, "windows of families", 0),
    (drops_labels_of_a_window_and_saves_it_later, "windows of families", 0),
    (fork_mutants.does_not_notice_a_fork, "forks", 0),
    (fork_mutants.goes_on_with_inherited_numbers_and_units, "forks", 0),
    (fork_mutants.spends_units_that_were_set_aside_before_the_fork, "forks", 8),
    (restore_mutants.grants_again_what_was_granted_since_the_copy, "older copies", 12),
    (restore_mutants.charges_again_what_is_handed_in_again, "older copies", 2),
    (restore_mutants.begins_a_round_of_a_family_again, "older copies", 20),
    (restore_mutants.waits_for_windows_that_a_site_has_left, "older copies", 6),
    (restore_mutants.continues_with_the_number_of_a_round_that_is_lost, "older copies", 1),
    (restore_mutants.believes_that_a_site_is_in_its_own_round_of_the_same_number, "older copies", 0),
    (copy_mutants.believes_that_a_site_has_left_when_a_copy_of_it_has, "copies", 1),
    (copy_mutants.hands_in_from_a_copy_on_the_same_boot, "copies", 25),
    (copy_mutants.continues_every_copy_as_an_incarnation_of_its_own, "copies", 1),
    (refilled_mutants.settles_in_the_present_period, "budgets with periods", 2),
    (refilled_mutants.grants_to_the_present_period, "budgets with periods", 5),
    (refilled_mutants.carries_units_over, "budgets with periods", 1),
    (refilled_mutants.opens_closed_periods, "budgets with periods", 3),
    (refilled_mutants.frees_what_was_handed_over, "rolling budgets", 0),
    (refilled_mutants.is_handed_over_with_too_large_an_age, "rolling budgets", 26),
    (refilled_mutants.keeps_what_it_hands_over, "rolling budgets", 0),
    (refilled_mutants.frees_what_was_handed_over_at_a_restart, "rolling budgets", 3),
    (refilled_mutants.frees_what_was_saved, "rolling budgets", 6),
    (refilled_mutants.forgets_what_was_saved, "rolling budgets", 0),
]
CLUSTER_MUTANTS: list[Any] = [
    (cluster_mutants.appends_without_fencing, "dying coordinator", 1),
    (cluster_mutants.takes_over_after_one_read, "take-overs", 83),
    (cluster_mutants.answers_without_a_lease, "take-overs", 1),
    (cluster_mutants.forgets_other_shards_when_one_has_retired_the_process, "take-overs", 9),
    (cluster_mutants.delivers_as_the_incarnation_that_a_shard_has_retired, "take-overs", 13),
    pytest.param(cluster_mutants.joins_parts_of_two_records, "small frames", 3, marks=pytest.mark.soak),
]
LISTED = Path(__file__).with_name("mutants.txt")


def test_mutants_are_those_of_the_list() -> None:
    """A mistake that no test makes any more would not be missed."""
    both = [(mutant, "memory") for mutant in MUTANTS]
    both += [(getattr(mutant, "values", mutant), "cluster") for mutant in CLUSTER_MUTANTS]
    lines = [f"{profile}, {store}: {mutate.__name__}" for (mutate, profile, _), store in both]
    assert LISTED.read_text(encoding="ascii").splitlines() == sorted(lines)


@pytest.mark.slow
@pytest.mark.parametrize(("mutate", "profile", "first"), MUTANTS, ids=[each[0].__name__ for each in MUTANTS])
def test_seeds_find_the_mistake(
    mutate: Callable[[pytest.MonkeyPatch], None], profile: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert f"--profile '{profile}' --store memory" in first_failure(first, profile, "memory")


@pytest.mark.slow
@pytest.mark.parametrize(("mutate", "profile", "first"), CLUSTER_MUTANTS)
def test_seeds_find_the_mistake_of_several_coordinators(
    mutate: Callable[[pytest.MonkeyPatch], None], profile: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert f"--profile '{profile}' --store cluster" in first_failure(first, profile, "cluster")


def first_failure(first: int, profile: str, store: str) -> str:
    for seed in (first, *range(200)):
        try:
            Trial.drawn(seed, profile, store)._replace(actions=100).run()
        except InvariantBroken as broken:
            return str(broken)
    return "no seed has found it"
