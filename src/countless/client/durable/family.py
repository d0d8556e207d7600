"""Families in the file of counts: a record for each label, and one for the family, which has its rule in its name.

    family    requests\\nlabels\\n0.01\\n0.0
    label     requests\\n{tenant="acme"}

The total of a family is the sum of its labels less the base of the family's record, which is 0 in the first
incarnation. So an event is one store: a process that is killed leaves a label and the total as they were before it, or
after it.
"""

from collections.abc import Mapping

from countless.client.durable.count_file import CountFile
from countless.client.durable.record import CounterRecord
from countless.client.durable.word_file import StateError
from countless.core.family.rule import FamilyRule
from countless.errors import CountlessError
from countless.wire.keys import FAMILY, Key, key_of


class FamilyRecords:
    """The records of one family. Implements `Records`."""

    def __init__(self, key: Key, rule: FamilyRule, file: CountFile) -> None:
        self.key = key
        self.rule = rule
        self._text = _text(str(key), rule.kind, repr(rule.epsilon), repr(rule.accuracy))
        self._file = file
        self._labels: dict[str, CounterRecord] = {}
        self._family: CounterRecord | None = None

    def add(self, label: str, n: int) -> None:
        record = self._labels.get(label)
        if record is None:
            if self._family is None:
                self._family = self._file.allocate_family(self._text)
            record = self._labels[label] = self._file.allocate_family(_text(str(self.key), label))
        record.add(n)

    def free(self) -> None:
        """Everything is delivered. The family comes last: no label is there without it."""
        for label in self._labels:
            self._file.free_family(_text(str(self.key), label))
        if self._family is not None:
            self._file.free_family(self._text)
        self._labels, self._family = {}, None

    def load(self, family: CounterRecord, labels: Mapping[str, CounterRecord]) -> None:
        self._family, self._labels = family, dict(labels)

    @property
    def counts(self) -> dict[str, int]:
        """Of the present incarnation."""
        return {label: record.count for label, record in self._labels.items() if record.count}

    @property
    def total(self) -> int:
        """Of the present incarnation.

        A process that was killed in `free` leaves a part of the labels: their sum may be less than the base.
        """
        base = 0 if self._family is None else self._family.base
        return max(0, sum(record.lifetime_total for record in self._labels.values()) - base)

    def rebase(self, counts: Mapping[str, int], total: int) -> None:
        for label, record in self._labels.items():
            record.rebase(record.lifetime_total - counts.get(label, 0))
        if self._family is not None:
            self._family.rebase(sum(record.lifetime_total for record in self._labels.values()) - total)


def orphaned_families(file: CountFile) -> list[FamilyRecords]:
    """What a process that ended has left. Raises StateError if a label has no family, or a rule is not valid."""
    families: dict[str, tuple[FamilyRecords, CounterRecord]] = {}
    labels: dict[str, dict[str, CounterRecord]] = {}
    try:
        for text, record in file.families.items():
            family, *rest = _fields(text)
            if len(rest) == 1:
                labels.setdefault(family, {})[rest[0]] = record
            else:
                kind, epsilon, accuracy = rest
                rule = FamilyRule(kind, float(epsilon), float(accuracy))
                families[family] = FamilyRecords(key_of(FAMILY, family), rule, file), record
    except (ValueError, CountlessError) as error:
        raise StateError(f"{file.path} is damaged: a family is invalid: {error}") from None
    if labels.keys() - families.keys():
        raise StateError(f"{file.path} is damaged: a label has no family")
    for family, (records, record) in families.items():
        records.load(record, labels.get(family, {}))
    return [records for records, _ in families.values()]


# The text of a record has one field in each line: neither names nor labels have line feeds.


def _text(*fields: str) -> str:
    return "\n".join(fields)


def _fields(text: str) -> list[str]:
    return text.split("\n")
