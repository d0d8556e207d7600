"""Budgets in a state directory: what a process that ended has left, and what is handed in for it."""

import fcntl
import logging
from pathlib import Path
from shutil import copyfile

import pytest

from countless.client.budgets.requests import PeriodRefusal
from countless.client.durable import budget_record
from countless.client.durable.budget import DurableBudget, OrphanedBudget, orphaned_budgets
from countless.client.durable.budget_record import NAME_OFFSET, read_boot_id
from countless.client.durable.count_file import CountFile
from countless.core.budget.messages import BudgetId, Quota
from countless.core.budget.rule import BudgetRule
from countless.core.budget.site import BudgetSite
from countless.core.messages import SiteId
from countless.wire.budgets import BudgetLeave, BudgetLeaveAck
from countless.wire.keys import COUNTER, Key

SITE, TOKENS = SiteId("web", 11), BudgetId("tokens", 3)


def granted(file: CountFile, limit: int, budget: BudgetId = TOKENS) -> DurableBudget:
    local = DurableBudget(BudgetSite(budget), SITE.incarnation, file)
    local.receive(Quota(budget, since=1, number=1, granted=limit, keep=True))
    return local


def reopened(file: CountFile) -> CountFile:
    """As the next process finds it."""
    assert file.path is not None
    file.release()
    orphan = CountFile.open_orphan(file.path)
    assert orphan is not None
    return orphan


def hand_ins(file: CountFile) -> list[BudgetLeave]:
    return [leave for budget in orphaned_budgets(file).values() for leave in budget.hand_ins()]


def test_spent_and_held_units_are_found_by_the_next_process(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, SITE)
    file.allocate(Key(COUNTER, "hits"))
    local = granted(file, 100)
    for _ in range(5):
        local.take(1)
        next(local.units)
    local.take(20)
    local.reserve(7)
    local.reserve(4)
    local.settle(7, 2)
    file.allocate(Key(COUNTER, "misses"))
    orphan = reopened(file)
    assert [key.name for key in orphan.records(Key)] == ["hits", "misses"]
    assert hand_ins(orphan) == [BudgetLeave(TOKENS, 11, 36)]


def test_refusal_in_a_period_is_found_by_the_next_process_until_units_are_granted(tmp_path: Path) -> None:
    file, rule = CountFile.create(tmp_path, SITE), BudgetRule(10, "day")
    refused, granted_again = (DurableBudget(BudgetSite(BudgetId(name, 3)), SITE.incarnation, file) for name in "ab")
    for local in (refused, granted_again):
        local.follow(rule)
        local.receive(Quota(local.site.budget, since=1, number=1, granted=0, refuse_from=2))
    granted_again.receive(Quota(granted_again.site.budget, since=1, number=2, granted=5))
    assert [record.refusal for record in reopened(file).budgets] == [PeriodRefusal(2, 4 * 86_400), None]


def test_acknowledged_record_is_not_handed_in_again(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, SITE)
    granted(file, 100).take(20)
    granted(file, 100, BudgetId("mails")).take(3)
    file = reopened(file)
    orphans = orphaned_budgets(file)
    orphans["tokens"].receive(BudgetLeaveAck(TOKENS, 11))
    assert (orphans["tokens"].settled, orphans["mails"].settled) == (True, False)
    assert hand_ins(reopened(file)) == [BudgetLeave(BudgetId("mails"), 11, 3)]


def test_acknowledgement_of_another_incarnation_or_period_changes_nothing() -> None:
    file = CountFile.in_memory(SITE)
    granted(file, 100).take(20)
    orphan = OrphanedBudget(file.budgets)
    orphan.receive(BudgetLeaveAck(TOKENS, 12))
    orphan.receive(BudgetLeaveAck(BudgetId("tokens", 4), 11))
    assert orphan.hand_ins() == [BudgetLeave(TOKENS, 11, 20)]


def test_discarded_record_is_used_again_and_a_late_settlement_does_not_change_it(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, SITE)
    first = granted(file, 100)
    first.reserve(30)
    first.discard()
    granted(file, 100, BudgetId("tokens", 4)).take(5)
    first.settle(30, 20)
    assert len(file.budgets) == 1
    assert hand_ins(reopened(file)) == [BudgetLeave(BudgetId("tokens", 4), 11, 5)]


def test_budget_that_is_not_used_has_no_record(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, SITE)
    local = DurableBudget(BudgetSite(TOKENS), SITE.incarnation, file)
    local.discard()
    assert file.budgets == []
    asked = DurableBudget(BudgetSite(TOKENS), SITE.incarnation, file)
    asked.take(1)  # units may be granted from now on
    assert hand_ins(file) == [BudgetLeave(TOKENS, 11, 0)]


def test_names_of_as_many_words_share_records(tmp_path: Path) -> None:
    """So a program that uses a budget for each of its users does not fill the disk."""
    file = CountFile.create(tmp_path, SITE)
    for number in range(1000):
        local = granted(file, 100, BudgetId(f"keys/user-{number}"))
        local.take(number % 100 + 1)
        if number < 999:
            local.discard()
    assert len(file.budgets) == 1
    assert hand_ins(reopened(file)) == [BudgetLeave(BudgetId("keys/user-999"), 11, 100)]


def test_process_killed_while_it_renames_a_record_loses_nothing_else(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, SITE)
    for name in ("first", "tokens", "last"):
        granted(file, 100, BudgetId(name)).take(5)
    record = file.budgets[1]
    record.free()
    record.words[record.at + NAME_OFFSET] = int.from_bytes(b"others", "little")  # the name, without its CRC
    assert [leave.budget.name for leave in hand_ins(reopened(file))] == ["first", "last"]


def test_forked_child_does_not_change_the_file_of_its_parent(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, SITE)
    local = granted(file, 100)
    local.take(1)
    local.reserve(10)
    local.abandon()  # as the child does, with its copy
    assert next(local.units, None) is None
    local.settle(10, 0)
    assert hand_ins(reopened(file)) == [BudgetLeave(TOKENS, 11, 11)]


@pytest.mark.parametrize("boot", ["", "another"])
def test_nothing_is_handed_in_after_the_machine_was_restarted(
    boot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file may be older than what was admitted: all that was granted stays charged."""
    file = CountFile.create(tmp_path, SITE)
    granted(file, 100).take(20)
    monkeypatch.setattr(budget_record, "boot_id", lambda: boot)
    with caplog.at_level(logging.WARNING):
        assert hand_ins(reopened(file)) == []
    assert "machine restarted or file copied" in caplog.text


def test_nothing_is_handed_in_from_a_copy_of_the_file_on_the_same_boot(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, SITE)
    granted(file, 100).take(20)
    (tmp_path / "copy").mkdir()
    copy = CountFile.open_orphan(copyfile(file.path or "", tmp_path / "copy" / "1.counts"))
    assert copy is not None
    assert hand_ins(copy) == []
    assert hand_ins(reopened(file)) == [BudgetLeave(TOKENS, 11, 20)]


def test_copy_with_the_inode_of_the_deleted_file_is_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system numbers the uses of an inode."""
    file = CountFile.create(tmp_path, SITE)
    granted(file, 100).take(20)
    monkeypatch.setattr(fcntl, "ioctl", lambda descriptor, request, data: bytes([7] * len(data)))
    assert hand_ins(reopened(file)) == []


def test_file_system_that_does_not_number_the_uses_of_an_inode_is_no_reason_to_hand_in_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> bytes:
        raise OSError("inappropriate ioctl for device")

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    file = CountFile.create(tmp_path, SITE)
    granted(file, 100).take(20)
    assert hand_ins(reopened(file)) == [BudgetLeave(TOKENS, 11, 20)]


def test_moved_file_is_no_copy(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path / "before", SITE)
    granted(file, 100).take(20)
    file.release()
    (tmp_path / "before").rename(tmp_path / "after")
    (path,) = (tmp_path / "after").iterdir()
    moved = CountFile.open_orphan(path)
    assert moved is not None
    assert hand_ins(moved) == [BudgetLeave(TOKENS, 11, 20)]


def test_run_of_the_machine_is_unknown_without_a_boot_id(tmp_path: Path) -> None:
    assert read_boot_id(tmp_path / "boot_id") == ""
    (tmp_path / "boot_id").write_text("01234567-89ab-cdef-0123-456789abcdef\n")
    assert read_boot_id(tmp_path / "boot_id") == "01234567-89ab-cdef-0123-456789abcdef"


def test_budgets_beyond_a_chunk_are_found(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, SITE)
    budgets = [BudgetId(f"{'x' * 200}-{number}") for number in range(300)]
    for number, budget in enumerate(budgets):
        granted(file, 1000, budget).take(number + 1)
    assert [(leave.budget, leave.spent) for leave in hand_ins(reopened(file))] == [
        (budget, number + 1) for number, budget in enumerate(budgets)
    ]
