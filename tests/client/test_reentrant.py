"""Changes of one object, and a signal handler anywhere in them: each is made once, and none waits for the other."""

from functools import partial
from threading import RLock

import pytest

from countless.client.families.local_family import LocalFamily
from countless.client.reentrant import Reentrant
from countless.core.family.messages import LabelReport, UpMessage
from countless.core.family.rule import LABELS, FamilyRule
from countless.wire.keys import FAMILY, Key
from support.interrupts import interrupt, is_free, points, run_until


class Changes:
    """Changes that append to a list, and never while another one does."""

    def __init__(self) -> None:
        self.guard = Reentrant()
        self.made: list[str] = []
        self._making = False

    def make(self, name: str) -> None:
        assert not self._making
        self._making = True
        str(name)  # a point where a handler may come
        self.made.append(name)
        self._making = False

    def request(self, name: str) -> None:
        if self.guard.busy:
            self.guard.defer(partial(self.request, name))
        else:
            self.guard.run(self.make, name)


def test_change_of_a_handler_is_made_once_wherever_it_comes() -> None:
    for point in points():
        changes = Changes()
        if not run_until(partial(changes.request, "change"), point, partial(changes.request, "handler")):
            break
        assert sorted(changes.made) == ["change", "handler"]
        assert not changes.guard.busy
    assert point > 3


def test_deferred_changes_are_made_once_if_a_handler_comes_between_them() -> None:
    for point in points():
        changes = Changes()

        def change(changes: Changes = changes) -> None:
            for name in ("first", "second"):
                changes.guard.defer(partial(changes.request, name))

        if not run_until(partial(changes.guard.run, change), point, partial(changes.request, "handler")):
            break
        assert sorted(changes.made) == ["first", "handler", "second"]
    assert point > 5


def test_exception_ends_a_change_and_what_was_deferred_is_made() -> None:
    changes = Changes()

    def change() -> None:
        changes.request("deferred")
        raise KeyError

    with pytest.raises(KeyError):
        changes.guard.run(change)
    assert (changes.made, changes.guard.busy) == (["deferred"], False)


class RecordedFamily:
    """A family, and what it has reported."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.reported: dict[str, int] = {}
        self.family = LocalFamily(Key(FAMILY, "pages"), FamilyRule(LABELS, 0.1), 10, self.lock, self._deliver)

    def _deliver(self, key: Key, messages: tuple[UpMessage, ...]) -> None:
        for message in messages:
            if isinstance(message, LabelReport):
                self.reported.update(message.counts)

    def leave(self) -> None:
        with self.lock:
            self._deliver(self.family.key, self.family.leave()[0])


ACTIONS = {
    "add": lambda recorded: recorded.family.add("a", 3),
    "leave": RecordedFamily.leave,
    "renew": lambda recorded: recorded.family.renew(None),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_events_of_a_handler_are_counted_and_reported_wherever_it_comes(action: str) -> None:
    for point in points():
        recorded = RecordedFamily()
        recorded.family.add("a", 2)
        count = recorded.family.count_of("a") + 3 * (action == "add")
        if not run_until(partial(ACTIONS[action], recorded), point, partial(recorded.family.add, "b", 5)):
            break
        assert (recorded.family.count_of("a"), recorded.family.count_of("b")) == (count, 5)
        recorded.leave()
        assert recorded.reported == {"a": count, "b": 5}
        assert is_free(recorded.lock)
    assert point > 3


@pytest.mark.parametrize("action", ACTIONS)
def test_family_counts_on_after_a_handler_that_raises(action: str) -> None:
    for point in points():
        recorded = RecordedFamily()
        if not run_until(partial(ACTIONS[action], recorded), point, interrupt):
            break
        recorded.family.add("b", 5)
        recorded.leave()
        assert recorded.reported["b"] == 5
        assert is_free(recorded.lock)
    assert point > 3
