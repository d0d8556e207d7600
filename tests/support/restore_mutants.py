"""Mistakes that are easily made when the state is an older copy; seeds must find each."""

import pytest

from countless.core.family.coordinator import FamilyCoordinator
from countless.core.ledger import Entry
from countless.core.messages import Outbox
from countless.core.rounds import Rounds
from countless.server.kinds.budget_restore import BudgetRestore
from countless.server.sessions.members import Members
from countless.server.settings import Settings


def grants_again_what_was_granted_since_the_copy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Settings, "wait_after_restore", None)


def charges_again_what_is_handed_in_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BudgetRestore, "was_handed_in", lambda self, budget, site_id: False)


def begins_a_round_of_a_family_again(patch: pytest.MonkeyPatch) -> None:
    """With other steps than before."""
    patch.setattr(FamilyCoordinator, "is_foreign", lambda self, sync: False)


def waits_for_windows_that_a_site_has_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Members, "lose_unconfirmed", lambda self, session: session.unconfirmed.clear())


def continues_with_the_number_of_a_round_that_is_lost(patch: pytest.MonkeyPatch) -> None:
    def start_above(self: Rounds, number: int) -> Outbox:
        return self._start(self._open_round())

    patch.setattr(Rounds, "_start_above", start_above)


def believes_that_a_site_is_in_its_own_round_of_the_same_number(patch: pytest.MonkeyPatch) -> None:
    original = Rounds.rejoin

    def rejoin(self: Rounds, entry: Entry, number: int) -> Outbox:
        entry.joined = True
        return original(self, entry, number)

    patch.setattr(Rounds, "rejoin", rejoin)
