"""Families in the file of counts: a record for each label, and one for the family, which has its rule in its name.

The total of a family is the sum of its labels less the base of the family's record, which is 0 in the first
incarnation. So an event is one store: a process that is killed leaves a label and the total as they were before it, or
after it.
"""

from collections.abc import Mapping
from functools import partial
from threading import RLock

from countless.client.durable.count_file import CountFile
from countless.client.durable.record import CounterRecord
from countless.client.durable.record_names import FamilyName, LabelName
from countless.client.durable.word_file import StateError
from countless.client.families.local_family import LocalFamily
from countless.client.kinds.family import FamilyMember
from countless.core.family.messages import UpMessage
from countless.core.family.rule import FamilyRule
from countless.core.family.site import LABEL_CAP
from countless.errors import InvalidParameter
from countless.wire.keys import Key


class FamilyRecords:
    """The records of one family. Implements `Records`."""

    def __init__(self, key: Key, rule: FamilyRule, file: CountFile) -> None:
        self.key = key
        self.rule = rule
        self._name = FamilyName(key, rule.kind, rule.epsilon, rule.accuracy)
        self._file = file
        self._labels: dict[str, CounterRecord] = {}
        self._family: CounterRecord | None = None

    def add(self, label: str, n: int) -> None:
        record = self._labels.get(label)
        if record is None:
            if self._family is None:
                self._family = self._file.allocate(self._name)
            record = self._labels[label] = self._file.allocate(LabelName(self.key, label))
        record.add(n)

    def free(self) -> None:
        """Everything is delivered. The family comes last: no label is there without it."""
        for label in self._labels:
            self._file.free(LabelName(self.key, label))
        if self._family is not None:
            self._file.free(self._name)
        self._labels, self._family = {}, None

    def load(self, family: CounterRecord, labels: Mapping[str, CounterRecord]) -> None:
        self._family, self._labels = family, dict(labels)

    @property
    def counts(self) -> dict[str, int]:
        """Counted by the current incarnation."""
        return {label: record.count for label, record in self._labels.items() if record.count}

    @property
    def total(self) -> int:
        """Counted by the current incarnation.

        A process that was killed in `free` leaves a part of the labels: their sum may be less than the base.
        """
        base = 0 if self._family is None else self._family.base
        return max(0, sum(record.lifetime_total for record in self._labels.values()) - base)

    def rebase(self, counts: Mapping[str, int], total: int) -> None:
        for label, record in self._labels.items():
            record.rebase(record.lifetime_total - counts.get(label, 0))
        if self._family is not None:
            self._family.rebase(sum(record.lifetime_total for record in self._labels.values()) - total)


def families_in(file: CountFile) -> list[FamilyRecords]:
    """Those of a process that has ended. Raises StateError if a label has no family, or a rule is not valid."""
    families: dict[Key, FamilyRecords] = {}
    labels: dict[Key, dict[str, CounterRecord]] = {}
    for label, record in file.records(LabelName).items():
        labels.setdefault(label.family, {})[label.label] = record
    for name, record in file.records(FamilyName).items():
        try:
            records = FamilyRecords(name.key, FamilyRule(name.kind, name.epsilon, name.accuracy), file)
        except InvalidParameter as error:
            raise StateError(f"{file.path} is damaged: a family is invalid: {error}") from None
        records.load(record, labels.pop(name.key, {}))
        families[name.key] = records
    if labels:
        raise StateError(f"{file.path} is damaged: a label has no family")
    return [*families.values()]


def orphaned_families(file: CountFile) -> list[FamilyMember]:
    """They have only to leave, and send everything in the file, which is merged by maximum."""
    return [
        LocalFamily(
            key=each.key,
            rule=each.rule,
            cap=LABEL_CAP,
            lock=RLock(),
            deliver=_ignore_messages,
            new_records=partial(_same, each),
            counts=each.counts,
            total=each.total,
        ).member()
        for each in families_in(file)
    ]


def _same(records: FamilyRecords) -> FamilyRecords:
    return records


def _ignore_messages(key: Key, messages: tuple[UpMessage, ...]) -> None:
    pass
