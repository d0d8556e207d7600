"""A family, or one of its labels, as something that is read like a counter."""

import asyncio
from collections.abc import Mapping
from functools import cached_property

from countless.core.family.coordinator import FamilyCoordinator
from countless.core.periods.window import TotalAnswer
from countless.server.kinds.windowed_counter import AnyCounter
from countless.server.kinds.windowed_family import AnyFamily
from countless.server.sessions.tracked import MessageCount
from countless.server.storage.save_health import SaveHealth
from countless.wire.keys import counter_of


class LabelView:
    """One label of a family, as a series of a counter. Made for one reading."""

    def __init__(self, name: str, family: AnyFamily) -> None:
        self.name = name
        self.family = family

    @cached_property
    def published_answer(self) -> TotalAnswer:
        _, estimate, lower, upper = self.family.published.answer(self.family.label_of(self.name))
        return self.family.published_answer._replace(estimate=estimate, lower=lower, upper=upper)

    @property
    def changed(self) -> asyncio.Event:
        return self.family.changed

    @property
    def health(self) -> SaveHealth:
        return self.family.health

    @property
    def traffic(self) -> MessageCount:
        return self.family.traffic

    @property
    def coordinator(self) -> FamilyCoordinator:
        return self.family.coordinator


AnyPart = AnyCounter | AnyFamily | LabelView


def family_parts(families: Mapping[str, AnyFamily], name: str) -> list[AnyFamily | LabelView]:
    """A family, or a label of one that is known. Empty: it is neither."""
    if name in families:
        return [families[name]]
    family = families.get(counter_of(name) or name)
    if family is None or family.label_of(name) not in family.published.counts:
        return []
    return [LabelView(name, family)]
