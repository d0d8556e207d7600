"""Mistakes that are easily made when the state is an older copy; seeds must find each."""

import pytest

from countless.core.family.coordinator import FamilyCoordinator
from countless.server.sessions.budgets.restore import BudgetRestore
from countless.server.sessions.lifecycle import SessionLifecycle
from countless.server.settings import Settings


def grants_again_what_was_granted_since_the_copy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Settings, "wait_after_restore", None)


def charges_again_what_is_handed_in_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BudgetRestore, "was_handed_in", lambda self, budget, site_id: False)


def begins_a_round_of_a_family_again(patch: pytest.MonkeyPatch) -> None:
    """With other steps than before."""
    patch.setattr(FamilyCoordinator, "is_foreign", lambda self, sync: False)


def waits_for_windows_that_a_site_has_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SessionLifecycle, "lose_unconfirmed", lambda self, session: session.unconfirmed.clear())
