"""A fork without hooks, as it was before anything noticed it; seeds must find each."""

import pytest

from countless.client import forks
from countless.client.fork_page import ForkPage


def does_not_notice_a_fork(patch: pytest.MonkeyPatch) -> None:
    """Only the hooks of Python do anything."""
    goes_on_with_inherited_numbers_and_units(patch)
    patch.setattr(forks.ClientLock, "__enter__", forks._enter)


def goes_on_with_inherited_numbers_and_units(patch: pytest.MonkeyPatch) -> None:
    """A fork is noticed where the lock is taken, and nowhere else."""
    patch.setattr(ForkPage, "items", lambda self, items: items)
    patch.setattr(ForkPage, "endless", lambda self, items: items)


def spends_units_that_were_set_aside_before_the_fork(patch: pytest.MonkeyPatch) -> None:
    """And counts in the file of its parent."""
    patch.setattr(ForkPage, "items", lambda self, items: items)
