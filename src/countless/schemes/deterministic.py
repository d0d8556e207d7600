"""`deterministic`: a site reports when its count has left the range that its last report covers.

How far a site may count without a report is its tolerance. A site with `r` events adds `growth * r` to what all sites
together may keep to themselves, growth = 2 alpha/(1-alpha), and starts with a tolerance of just that. The fewest
messages are sent if tolerances are as the square roots of the counts: so busy sites lend, and others borrow.

- A busy site lends: its trigger gets a smaller alpha. It has lent (growth - its own growth) * r, rounded down.
- Another site borrows: its trigger gets `extra` events.

What is borrowed is never more than what is lent, whatever the sites count from then on (design/proofs/oblivious.md).
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import sqrt

from countless.core.answer import midpoint
from countless.core.estimator import Effect, Estimator, KeepRound, RoundContext, RoundSetup, Scheme
from countless.core.ledger import Entry
from countless.core.parameters import exact_fraction
from countless.core.random_source import RandomSource
from countless.core.triggers import PHASES, GeometricGrowth, Trigger
from countless.planning.deterministic import plan_deterministic

# Chosen by trial on recorded, balanced, wandering and hostile traffic (design/proofs/oblivious.md, section 1):
MAX_EXCESS = 1.5  # a tolerance this many times its target is lent from; one that is raised is raised to this
MIN_RAISE = 2  # a tolerance is raised only to this many times what it was
MIN_SAVING = 2  # messages that a change must save or give up until the site's count has doubled: it costs one itself
MIN_POOL = 0.05  # of what all sites may keep to themselves: if less can be borrowed, busy sites lend more


@lru_cache(maxsize=16 * PHASES)
def _first_trigger(alpha: float, phase: int) -> GeometricGrowth:
    return GeometricGrowth(alpha, 0, phase)


class Tolerance:
    """The events that one site may keep to itself.

    `sent` is the trigger that it was sent last. While it is not known to have adopted that one, others may be in force;
    none of them allows more than `largest`, by which the site is counted.
    """

    __slots__ = ("credit", "growth", "largest", "lends", "may_lend", "most", "reconsider_at", "root", "sent")

    def __init__(self, trigger: GeometricGrowth, growth: float) -> None:
        self.sent = self.largest = trigger
        self.growth = growth  # of `largest`
        self.lends: tuple[int, int] | None = None  # what `largest` lends for each event of the site, as a fraction
        self.may_lend = True
        self.most = 0  # the largest count that the last report can stand for
        self.credit = 0  # what the site has lent; below 0: borrowed
        self.root = 0.0  # of its count when its tolerance was last considered
        self.reconsider_at = 1

    def count_by(self, trigger: GeometricGrowth, growth: Fraction) -> None:
        self.largest, self.growth = trigger, float(trigger.growth)
        lends = growth - trigger.growth
        self.lends = lends.as_integer_ratio() if lends else None

    def credit_at(self, count: int) -> int:
        if self.lends is None:
            return -self.largest.extra
        part, unit = self.lends
        return count * part // unit


class DeterministicEstimator(Estimator):
    """A site's count lies between its last report and the largest count that the report covers. Publish the middle.

    Any value from (1-alpha) * (sum of largest counts) to (1+alpha) * (sum of reports) is within 1 ± alpha of every
    total the reports allow. While no report stands for more than itself, the two sums agree and the answer is exact.
    """

    def __init__(self, alpha: float, reconsider_at: int | None = None) -> None:
        self._plain = _first_trigger(alpha, 0)
        self._alpha = alpha
        self._growth = self._plain.growth
        self._allowed_per_event = float(self._growth)
        part, self._unit = exact_fraction(alpha).as_integer_ratio()
        self._down, self._up = self._unit - part, self._unit + part
        self._least = self._most = 0
        self._pool = 0  # lent and not borrowed: never below 0
        self._roots = 0.0  # the sum of the roots of the counts
        self._sites: dict[int, Tolerance] = {}
        self.reconsider_at = reconsider_at
        self.exact_below = self._plain.exact_below

    @property
    def known(self) -> tuple[int, int]:
        return self._least, self._most

    def trigger(self, slot: int) -> Trigger:
        site = self._sites.get(slot)
        # Neighbouring slots differ in several bits: the phases of few sites are spread, too.
        return site.sent if site else _first_trigger(self._alpha, slot * 11 % PHASES)

    def exact_below_of(self, entry: Entry) -> float:
        site = self._sites.get(entry.slot)
        return 0 if site and site.largest.extra else self.exact_below

    def on_resend(self, entry: Entry) -> None:
        """Its trigger is under way once more. A report that this causes must not be taken for that of a later one."""
        self._sites[entry.slot].may_lend = False

    def start(self, entries: Sequence[Entry], departed: int) -> None:
        """Every count is known; from now on each site may have counted as far as its trigger lets it."""
        self._least = self._most = departed
        self._pool = self._plain.max_count_covered(departed) - departed
        for entry in entries:
            self._add(entry)
        self._update_estimate()

    def join(self, entry: Entry) -> None:
        self._add(entry)
        self._update_estimate()

    def _add(self, entry: Entry) -> None:
        trigger = _first_trigger(self._alpha, entry.slot * 11 % PHASES)
        site = self._sites[entry.slot] = Tolerance(trigger, self._allowed_per_event)
        count = entry.round_start
        site.root = sqrt(count)
        site.most = trigger.max_count_covered(count)
        self._roots += site.root
        self._least += count
        self._most += site.most

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        count = entry.reported
        if count == before:
            return self._update_estimate()
        site = self._sites[entry.slot]
        if site.sent is not site.largest and crossings and count < site.largest.next_point(before):
            site.count_by(site.sent, self._growth)  # the other trigger would not have reported yet
        self._least += count - before
        credit = site.credit_at(count) if site.lends else site.credit
        self._set_most(site, site.largest.max_count_covered(count), credit)
        changed = count >= site.reconsider_at and crossings > 0 and self._reconsider(site, entry)
        effect = self._update_estimate()
        return Effect.CHANGE_TRIGGER if changed else effect  # the round may end at the next report

    def leave(self, entry: Entry, before: int) -> Effect | None:
        """Its count is exact: it lends all that it might have kept to itself."""
        site, count = self._sites[entry.slot], entry.reported
        self._least += count - before
        self._set_most(site, count, self._plain.max_count_covered(count) - count)
        self._roots -= site.root
        return self._update_estimate()

    def _set_most(self, site: Tolerance, most: int, credit: int) -> None:
        self._most += most - site.most
        self._pool += credit - site.credit
        site.most, site.credit = most, credit

    def _update_estimate(self) -> Effect | None:
        least, most = self._least, self._most
        self.estimate = midpoint(self._down * most, self._up * least, self._unit)
        return Effect.END_ROUND if self.reconsider_at is not None and least >= self.reconsider_at else None

    # The tolerance of a site that has just reported

    def _reconsider(self, site: Tolerance, entry: Entry) -> bool:
        """True if the site is sent another trigger."""
        count, root = entry.reported, sqrt(entry.reported)
        site.reconsider_at = count + count // 8 + 1
        self._roots += root - site.root
        site.root = root
        allowed = self._allowed_per_event * self._least
        roots = max(root, self._roots)  # a sum of doubles: too small once a far larger root was added and has left
        target, unrounded = allowed * root / roots, site.growth * count + site.largest.extra
        if MIN_RAISE * unrounded <= MAX_EXCESS * target:
            tolerance = site.most - count
            raised = min(int(MAX_EXCESS * target), tolerance + self._pool)
            pays = raised >= MIN_RAISE * unrounded and _pays(count, tolerance, raised)
            return pays and self._raise(site, count, raised)
        if unrounded < MAX_EXCESS * target or self._pool >= MIN_POOL * allowed:
            return False
        return _pays(count, int(target), site.most - count) and self._lend(site, entry, target / count)

    def _raise(self, site: Tolerance, count: int, tolerance: int) -> bool:
        """Borrow, or take back what was lent. It counts at once, so nothing is wrong if the trigger is lost or late."""
        present, extra = site.largest, max(0, tolerance - (self._plain.max_count_covered(count) - count))
        if site.sent is not present:
            return False
        trigger = GeometricGrowth(self._alpha, extra, present.phase)
        site.count_by(trigger, self._growth)
        credit = site.credit_at(count)
        if self._pool + credit < site.credit:
            site.count_by(present, self._growth)
            return False
        site.sent, site.may_lend = trigger, False
        self._set_most(site, trigger.max_count_covered(count), credit)
        return True

    def _lend(self, site: Tolerance, entry: Entry, growth: float) -> bool:
        """Send a smaller tolerance. It counts when the site is known to have adopted it: until then, the present one.

        It is known from a report that comes earlier than the present trigger allows. So no other trigger may be under
        way, which would cause a report when it arrives: none that was raised, none that was sent again, and not the one
        of a new site, which reports every event until then. Fewer crossings than events: that one has arrived.
        """
        alpha = self._alpha_below(growth)
        unambiguous = site.may_lend and entry.crossings < entry.reported - entry.round_start
        if site.sent is not site.largest or not unambiguous or alpha >= site.largest.alpha:
            return False
        site.sent = GeometricGrowth(alpha, 0, site.sent.phase)
        return True

    def _alpha_below(self, growth: float) -> float:
        """The alpha of a trigger with this growth, rounded down to a 64th of the counter's alpha."""
        return self._alpha * max(1, min(64, int(64 * growth / (2 + growth) / self._alpha))) / 64


def _pays(count: int, smaller: int, larger: int) -> bool:
    return count / (smaller + 1) - count / (larger + 1) >= MIN_SAVING


class Deterministic(Scheme):
    """A tolerance for each site: each reports when its count leaves the range that its last report covers. No secrets.

    Formal guarantees: |estimate - total| <= alpha * total at every moment, with certainty, against every adversary, if
    messages are instantaneous.
    About k / ln((1+alpha)/(1-alpha)) messages for each e-fold of the total if k sites share the traffic evenly, half of
    the one-sided version in the paper; fewer if they do not.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=2, alpha=0.1, scheme="deterministic")
    >>> for _ in range(1000): tracker.site(0).add()
    >>> tracker.messages.up, tracker.answer.lower <= 1000 <= tracker.answer.upper
    (29, True)

    References: Cormode, Muthukrishnan, Yi (2008); design/proofs/oblivious.md has the two-sided form.
    """

    name = "deterministic"
    safe_against = "sees-everything"

    def open_round(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        return RoundSetup(
            self.name, DeterministicEstimator(context.alpha), plan=plan_deterministic(context.sites, context.alpha)
        )
