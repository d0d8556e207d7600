"""The budgets of a coordinator, and which sessions hold a part of them.

A site that asks is a holder from then on, in the period that it asked for. When its session times out, its limit counts
as used until it is back; when the session is retired, for good, unless a later incarnation of the site hands in what
was spent. The rows of a period are deleted when it is closed. So the rows kept of a budget are those of sessions, and
those of MAX_GIVEN_UP incarnations that ended without handing in their units, for each period that is open. Names that
follow a template are dropped when they are not used any more (`templates.py`). Of a rolling budget no site is
given up: its units come back (`rolling_units.py`).
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from math import inf
from typing import Any

from countless.core.budget.amounts import MAX_AMOUNT
from countless.core.budget.messages import Ask, BudgetId, Outbox, Quota
from countless.core.budget.rule import DEFAULT_MAX_NAMES, OVERDRAFT, BudgetRule
from countless.core.messages import SiteId
from countless.errors import InvalidParameter, ProtocolError, UnknownName
from countless.server.connection import Connection
from countless.server.kinds.budget_periods import BudgetPeriod, BudgetPeriods, SavedBudget, budget_key
from countless.server.kinds.budget_restore import BudgetRestore
from countless.server.kinds.budget_templates import Templates, validate_budget_name
from countless.server.kinds.lost_holders import LostHolders
from countless.server.kinds.rolling_units import RollingUnits
from countless.server.sessions.kind import Kind
from countless.server.sessions.service import Service
from countless.server.sessions.session_table import Session
from countless.server.sessions.shares import UNLIMITED
from countless.server.storage.rows import KeyRows, Tombstone
from countless.wire.budgets import BudgetLeave, BudgetLeaveAck, BudgetRejected, rule_item
from countless.wire.frames import DownItem
from countless.wire.keys import BUDGET, Key, is_template

log = logging.getLogger("countless.budgets")

FIXED_FIELDS = ("per", "tz", "anchor", "kind", "rolling")  # with another calendar, periods are at other times
MAX_BUDGETS = 10_000  # that operators created
MAX_PERIODS_PER_SITE = 30_000  # one site cannot fill the memory: three periods each of 10,000 names
BUDGETS_PER_SLICE = 1_000  # looked at in one go: three milliseconds
_MAX_NAMES = "max_names can only be used for a name that ends with /*"


class Budgets(Kind):
    """All budgets by name. Every change is marked for the next commit, before the messages it causes."""

    name = BUDGET

    def __init__(self, service: Service) -> None:
        self.by_name: dict[str, BudgetPeriods] = {}
        self.templates = Templates()
        self.handlers = {Ask: self.on_ask, BudgetLeave: self.on_leave}
        self._sessions = service.sessions
        self._members = service.members
        self._pipeline = service.pipeline
        self._clock = service.clock
        self._wall_clock = service.around.wall_clock
        self._max_share = service.settings.max_share  # of the names of a template, for one peer
        self._restore = BudgetRestore(service.settings.wait_after_restore, service.clock)
        self.losses = LostHolders(service.clock, service.sessions.used.joined)

    def load(self, loaded: Iterable[tuple[Key, KeyRows]]) -> Iterator[tuple[SiteId, Key, BudgetPeriod]]:
        saved = {name: SavedBudget.of(group) for name, group in groupby(loaded, key=lambda each: each[0].name)}
        for name in filter(is_template, saved):
            self.templates.add(name)
        for name, each in saved.items():
            budget = self._new(name, each.fields.rule, each.fields.first_period)
            self._add(budget)
            budget.load(each)
            for number, saved_period in each.periods.items():
                period = budget.periods[number]
                for site_id, site in saved_period.sites.items():
                    if site.given_up:
                        self.losses.remember(site_id, period.key)
                    else:
                        yield site_id, period.key, period

    def recover(self) -> None:
        """Wait for an Ask of each site that may have room: it sends one on its new connection, or times out.

        `BudgetRestore` says what happens if the state was restored from an older copy.
        """
        for period in [each for budget in self.by_name.values() for each in budget.periods.values()]:
            if self._restore.active:
                period.coordinator.restore()
            else:
                self._expect(period, period.coordinator.recover())

    def _expect(self, period: BudgetPeriod, outbox: Outbox) -> None:
        coordinator = period.coordinator
        self._members.expect(period, [each for each in coordinator.site_ids if coordinator.awaited(each) is not None])
        self._members.dispatch(period, outbox)

    @property
    def restoring(self) -> bool:
        """After a restore from a copy: some budget still waits for sites, or all do."""
        return self._restore.active

    def _new(self, name: str, rule: BudgetRule, first_period: int = 0) -> BudgetPeriods:
        return BudgetPeriods(
            name,
            rule,
            self._clock,
            self._wall_clock,
            first_period,
            restoring=lambda: self._restore.waiting,
            on_change=self._pipeline.changed,
        )

    def _add(self, budget: BudgetPeriods, peer: str = UNLIMITED) -> None:
        self.by_name[budget.name] = budget
        if budget.rule.template is not None:
            self.templates.add_name(budget.rule.template, budget.name, peer)

    def tick(self) -> Iterator[None]:
        """Close periods, and drop names that follow a template and are not used any more. Yields between slices."""
        for number, budget in enumerate(list(self.by_name.values()), start=1):
            if number % BUDGETS_PER_SLICE == 0:
                yield
            if self.by_name.get(budget.name) is budget:
                self._close_ended(budget)
        if self._restore.active:
            self._end_restores()

    def _end_restores(self) -> None:
        restoring = []
        for budget in self.by_name.values():
            for period in [each for each in budget.periods.values() if each.coordinator.restoring]:
                if self._restore.is_over(period.coordinator, budget.rule):
                    self._expect(period, period.coordinator.end_restore())
                else:
                    restoring.append(period.coordinator)
        self._restore.update(restoring)

    def _close_ended(self, budget: BudgetPeriods) -> None:
        closed = budget.close_ended()
        if budget.rolling is not None:
            self._return_units(budget, budget.rolling)
        drop = budget.rule.template is not None and budget.unused
        for period in closed:
            self._drop_period(period)
            for site_id in period.coordinator.site_ids:
                session = self._release(site_id, period.key)
                if drop and session is not None:
                    session.drop_note(budget.key)
        if drop and budget.rule.template is not None:
            template = self.by_name[budget.rule.template]
            template.first_period = max(template.first_period, budget.first_period)
            template.mark()
            self._remove(budget)

    def _return_units(self, budget: BudgetPeriods, rolling: RollingUnits) -> None:
        units = rolling.due()
        if units or rolling.is_outdated:
            for period in budget.periods.values():
                self._members.dispatch(period, period.coordinator.return_units(units))

    # Operators

    def get(self, name: str) -> BudgetPeriods:
        """The budget, also of a name that follows a template and is not in use."""
        budget = self._find_or_new(name)
        if budget is None:
            raise UnknownName("budget", name, self.by_name)
        return budget

    def _find_or_new(self, name: str) -> BudgetPeriods | None:
        """The budget; a new one that is not added yet, if the name follows a template; None otherwise."""
        budget = self.by_name.get(name)
        template = self.templates.of(name) if budget is None else None
        if template is None:
            return budget
        source = self.by_name[template]
        return self._new(name, replace(source.rule, max_names=None, template=template), source.first_period)

    def create(self, name: str, rule: BudgetRule) -> BudgetPeriods:
        """A budget, or a template if the name ends with `/*`."""
        validate_budget_name(name)
        if name in self.by_name:
            raise InvalidParameter("name", name, "a name that is not taken")
        self._require_room(name)
        if is_template(name):
            rule = replace(rule, max_names=rule.max_names or DEFAULT_MAX_NAMES)
            self.templates.add(name)
        elif rule.max_names is not None:
            raise InvalidParameter("max_names", rule.max_names, message=_MAX_NAMES)
        budget = self._new(name, rule)
        self._add(budget)
        budget.mark()
        return budget

    def _require_room(self, name: str) -> None:
        if len(self.by_name) - self.templates.names_in_use >= MAX_BUDGETS:
            raise InvalidParameter("name", name, f"one of at most {MAX_BUDGETS} budgets")

    def configure(self, name: str, changes: Mapping[str, Any]) -> BudgetPeriods:
        """Change these fields of the rule. A limit below what is known to be spent in the present period is refused.

        A change of a template changes all names that follow it. A name that is changed itself follows it no longer.
        """
        budget = self.get(name)
        rule = replace(budget.rule, **changes)
        if rule.max_names is not None and not is_template(name):
            raise InvalidParameter("max_names", rule.max_names, message=_MAX_NAMES)
        for field in FIXED_FIELDS:
            before = getattr(budget.rule, field)
            if getattr(rule, field) != before:
                allowed = f"{before!r}, as it was created; delete the budget and create it again"
                raise InvalidParameter(field, getattr(rule, field), allowed)
        spent = budget.usage.lower
        if rule.limit < min(spent, budget.rule.limit):
            allowed = f"from {spent}, the units spent already, to {MAX_AMOUNT} (2**62)"
            raise InvalidParameter("limit", rule.limit, allowed)
        if rule.template is not None:
            self._require_room(name)
            self._leave_template(budget, rule.template)
            rule = replace(rule, template=None)
            self.by_name[name] = budget
        self._set_rule(budget, rule)
        for each in sorted(self.templates.names(name)) if is_template(name) else ():
            self._set_rule(self.by_name[each], replace(rule, max_names=None, template=name))
        return budget

    def _set_rule(self, budget: BudgetPeriods, rule: BudgetRule) -> None:
        budget.set_rule(rule)
        budget.mark()
        for session in self._sessions:
            if session.connection is not None and budget.key in session.noted:
                self._pipeline.send(session.connection, rule_item(budget.name, budget.rule))
        for period in budget.periods.values():
            self._members.dispatch(period, period.coordinator.set_limit(rule.limit, rule.slack))

    def reset(self, name: str) -> BudgetPeriods:
        """Start the present period again; `BudgetCoordinator.reset` has the rules.

        A rolling budget starts with new accounts. Sites that are told ask, and forget what they have taken.
        """
        budget = self.get(name)
        period = budget.periods.get(budget.present)
        if period is not None and budget.rolling is not None:
            self._members.dispatch(period, period.coordinator.dismiss())
            self._drop_period(period)
            budget.start_again()
            for site_id in period.coordinator.site_ids:
                self._release(site_id, period.key)
        elif period is not None:
            self._members.dispatch(period, period.coordinator.reset())
        return budget

    def delete(self, name: str) -> None:
        """Delete a budget, or a template with all names that follow it. Holders may spend nothing more of it."""
        budget = self.by_name.get(name)
        if budget is None:
            raise UnknownName("budget", name, self.by_name)
        if is_template(name):
            for each in sorted(self.templates.names(name)):
                self.delete(each)
            self.templates.remove(name)
        for period in budget.periods.values():
            for site_id in period.coordinator.site_ids:
                session = self._release(site_id, period.key)
                if session is None:
                    continue
                session.drop_note(budget.key)
                if session.connection is not None:
                    self._reject(session.connection, period.id, f"budget {name!r} was deleted")
        self._remove(budget)

    def _remove(self, budget: BudgetPeriods) -> None:
        del self.by_name[budget.name]
        if budget.rule.template is not None:
            self._leave_template(budget, budget.rule.template)
        self._pipeline.forget(budget)
        self._pipeline.drop(budget.key.windows)

    def _leave_template(self, budget: BudgetPeriods, template: str) -> None:
        self.by_name[template].add_asks(budget)
        self.templates.drop_name(template, budget.name)

    def _drop_period(self, period: BudgetPeriod) -> None:
        """It is never opened again. Without periods the rule has the same key, so it is saved again, too."""
        self._pipeline.drop(period.key)
        period.budget.mark()

    # Sites

    def on_ask(self, session: Session, connection: Connection, ask: Ask, size: float) -> None:
        """The first Ask on a connection is sent again what may have been lost with the connection before."""
        (name, number), site_id = ask.budget, session.site_id
        budget = self._find_or_new(name)
        if budget is None:
            return self._reject(connection, ask.budget, f"there is no budget {name!r}")
        if is_template(name):
            return self._reject(connection, ask.budget, f"{name!r} is a template: use a name that follows it")
        if budget.calendar is not None and number == 0:  # the site asks again, for the period of its clock
            return self._send_rule(session, connection, budget)
        period = self._open(budget, number)
        if period is None:  # perhaps a period of a budget of this name that was deleted
            if budget.key not in session.noted:
                self._send_rule(session, connection, budget)
            return self._reject(connection, ask.budget, budget.why_not(number))
        coordinator, asked = period.coordinator, _asked(session)
        known = coordinator.saved_site(site_id)
        if known is None and (reason := self._why_no_more(session)):
            return self._reject(connection, ask.budget, reason)
        if name not in self.by_name and (reason := self._add_name(budget, session.peer)):
            return self._reject(connection, ask.budget, reason)
        if known is None or budget.key not in session.noted:
            self._send_rule(session, connection, budget)
        if known is not None and known.given_up:
            return self._reject(connection, ask.budget, "this incarnation was given up: start a new one")
        is_first = period.key not in asked
        outbox = (coordinator.join if is_first else coordinator.receive)(site_id, ask)
        if is_first:
            session.owed.note_progress()
            asked.add(period.key)
        self._members.enter(session, period.key, period)
        budget.traffic.add_up(size)
        period.mark_site(site_id)
        return self._members.dispatch(period, outbox)

    def _why_no_more(self, session: Session) -> str:
        """Not empty: why the session cannot use one more period of a budget."""
        if session.names(BUDGET) >= MAX_PERIODS_PER_SITE:
            return f"a site may use {MAX_PERIODS_PER_SITE} periods of budgets"
        if not self._sessions.used.joined.has_room(session.peer):
            return "sites use too many counters and budgets (max_memberships, and max_share of it for one token)"
        return ""

    def _open(self, budget: BudgetPeriods, number: int) -> BudgetPeriod | None:
        is_new = number not in budget.periods
        period = budget.period(number)
        if is_new and period is not None and self._restore.waiting:
            period.coordinator.restore()
        return period

    def _send_rule(self, session: Session, connection: Connection, budget: BudgetPeriods) -> None:
        session.note(budget.key)
        self._pipeline.send(connection, rule_item(budget.name, budget.rule))

    def _add_name(self, budget: BudgetPeriods, peer: str) -> str:
        """The first use of a name that follows a template; not empty: why it is refused."""
        template = budget.rule.template
        most = 0 if template is None else self.by_name[template].rule.max_names or 0
        if template is None or len(self.templates.names(template)) >= most:
            return f"{template!r} has as many names as it may have (max_names)"
        if self.templates.used_by(template, peer) >= max(1, int(most * self._max_share)):
            return f"{template!r} has as many names as one token may use (max_share of max_names)"
        self._add(budget, peer)
        budget.mark()
        return ""

    def on_leave(self, session: Session, connection: Connection, leave: BudgetLeave, size: float) -> None:
        """The units that an incarnation of the session's site has spent. A repeated one is acknowledged again.

        If it has reported more, this is from an older copy of what it keeps: then nothing is handed in.
        """
        site_id = SiteId(session.site_id.site, leave.incarnation)
        found, holder = self._find(leave.budget), self._sessions.get(site_id)
        if holder is not None and holder is not session and holder.connection is not None:
            raise ProtocolError(f"{site_id} is connected, and hands in what it spent itself")
        if found is None and self._restore.waiting and leave.budget.name in self.by_name:
            self._open(self.by_name[leave.budget.name], leave.budget.period)
            found = self._find(leave.budget)
        known = None if found is None else found.coordinator.saved_site(site_id)
        restoring = found is not None and found.coordinator.restoring
        believed = restoring and not self._restore.was_handed_in(leave.budget, site_id)
        if known is not None and leave.spent < known.spent:
            log.warning(
                "hand-in of an older copy, all units granted stay charged: site=%r budget=%r spent=%d reported=%d",
                site_id.site,
                leave.budget.name,
                leave.spent,
                known.spent,
            )
            if found is not None and holder is not None and found.key in holder.members:
                self._members.lose(holder, [found.key])
                holder.delivered = True
                self._sessions.remove_if_unused(holder)
            return self._pipeline.send(connection, BudgetLeaveAck(leave.budget, leave.incarnation))
        if found is not None and (known is not None or believed):
            budget, coordinator = found.budget, found.coordinator
            if coordinator.restoring:
                self._restore.note_handed_in(leave.budget, site_id)
            units = leave.spent
            if (
                known is not None
                and not known.granted
                and not coordinator.restoring
                and budget.rule.on_unreachable != OVERDRAFT
            ):
                units = 0  # it was spent in a membership that ended before the site knew of the next one
            outbox = coordinator.leave(site_id, units)
            coordinator.forget(site_id)  # frames of a site arrive in order, so no Ask of it is still under way
            budget.traffic.add_up(size)
            found.mark_left(site_id)
            self._members.dispatch(found, outbox)
        self._release(site_id, budget_key(leave.budget))
        return self._pipeline.send(connection, BudgetLeaveAck(leave.budget, leave.incarnation))

    # What they are sent

    def down_item(self, session: Session, key: Key, message: Quota) -> DownItem | None:
        """None before the session has asked on its connection: after a restart we do not know its last `Quota`."""
        return message if key in _asked(session) else None

    def asks(self, message: Quota) -> bool:
        return message.reply

    def saves(self, message: Quota) -> bool:
        return not message.reply  # it grants nothing

    # Sessions that begin and end

    def lose(self, session: Session, key: Key, site_id: SiteId, lost: bool) -> tuple[Outbox, list[Tombstone]]:
        period = self._find(BudgetId(key.name, key.period))
        return ([] if period is None else self.losses.lose(session, period)), []

    def has_given_up(self, site_id: SiteId) -> bool:
        return self.losses.retired(site_id)

    def exited(self, session: Session, key: Key) -> None:
        _asked(session).discard(key)

    def end_connection(self, session: Session) -> None:
        session.own.pop(BUDGET, None)

    def keeps(self, session: Session) -> bool:
        """After a restore: a budget waits for this session, or for an operator who drops it."""
        held = self._held(session) if self._restore.active else ()
        return any(session.site_id in each.coordinator.unheard for each in held)

    def renewed(self) -> None:
        """See `BudgetRestore.await_hand_ins`."""
        self._restore.await_hand_ins()

    def free(self, session: Session) -> float:
        """Release rolling budgets, once nothing that it took counts any more."""
        free_at = inf
        for period in self._held(session):
            if period.budget.rolling is None:
                continue
            at = period.budget.rolling.free_at(session.last_seen)
            if at > self._clock():
                free_at = min(free_at, at)
            else:
                outbox = self.losses.leave(period, session.site_id, 0)
                self._members.dispatch(period, outbox)
                self._release(session.site_id, period.key)
        return free_at

    def _held(self, session: Session) -> list[BudgetPeriod]:
        found = (self._find(BudgetId(key.name, key.period)) for key in sorted(session.members) if key.kind == BUDGET)
        return [each for each in found if each is not None]

    # Small parts

    def _find(self, budget_id: BudgetId) -> BudgetPeriod | None:
        budget = self.by_name.get(budget_id.name)
        return None if budget is None else budget.periods.get(budget_id.period)

    def _release(self, site_id: SiteId, key: Key) -> Session | None:
        """The site holds nothing of this period any more. Its session ends if it has nothing else."""
        self.losses.forget(site_id, key)
        session = self._sessions.get(site_id)
        if session is None:
            return None
        if key in session.members:
            self._members.exit(session, key)
        self._sessions.remove_if_unused(session)
        return session

    def _reject(self, connection: Connection, budget_id: BudgetId, reason: str) -> None:
        self._pipeline.send(connection, BudgetRejected(budget_id, reason))


def _asked(session: Session) -> set[Key]:
    """The periods of which it has asked for units on its present connection."""
    asked: set[Key] = session.own.setdefault(BUDGET, set())
    return asked
