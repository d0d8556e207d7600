"""The state of a site as its coordinator sees it: two automata, with all their transitions.

`RoundState` says how far the site is in the present round. Three facts matter to the rest of the core:

- whether `round_start`, the count at which the site adopted the round's trigger, is exact, requested or assumed;
- whether the trigger was sent to it;
- whether the trigger was changed during the round. Such a site may pass the same events on both triggers, and after a
  reconnection it is sent the trigger again, because the change may have been lost.

    state                            round_start   trigger
    CURRENT                          exact         sent
    TRIGGER_CHANGED                  exact         sent, then changed
    NOT_SENT                         exact         not sent: the trigger of the round before reports every event
    AWAITING_SNAPSHOT                requested     sent, with the request
    MISSED_START                     assumed       not sent, or not known to have arrived
    START_ASSUMED                    assumed       sent
    START_ASSUMED_TRIGGER_CHANGED    assumed       sent, then changed

`Presence` says whether the site can be reached. It does not depend on the round; what a site is sent at the start of a
round depends on it.

A pair of state and event that is not in the tables is a bug: `InvariantBroken`.
"""

from enum import StrEnum


class RoundState(StrEnum):
    CURRENT = "current"
    TRIGGER_CHANGED = "trigger changed"
    NOT_SENT = "not sent"
    AWAITING_SNAPSHOT = "awaiting snapshot"
    MISSED_START = "missed start"
    START_ASSUMED = "start assumed"
    START_ASSUMED_TRIGGER_CHANGED = "start assumed, trigger changed"


class Presence(StrEnum):
    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"
    DEPARTED = "departed"


class SiteEvent(StrEnum):
    STARTED_EXACT = "a round starts, the count is known exactly: nothing is sent"
    STARTED_REACHABLE = "a round starts, the site is reachable: StartRound is sent"
    STARTED_UNREACHABLE = "a round starts, the site is unreachable: its start is assumed"
    SNAPSHOT = "a Snapshot of this round arrives"
    REPORT = "a Report of this round arrives"
    MESSAGE = "any message arrives"
    TRIGGER_SENT = "SetTrigger is sent"
    NEW_TRIGGER = "the trigger of the site changes during the round"
    TIMED_OUT = "the owner marks the site as unreachable"
    LEFT = "the site leaves with its exact count"


# Names of the module, because every report uses them: in Python 3.11 `RoundState.CURRENT` takes as long as four calls.
(
    CURRENT,
    TRIGGER_CHANGED,
    NOT_SENT,
    AWAITING_SNAPSHOT,
    MISSED_START,
    START_ASSUMED,
    START_ASSUMED_TRIGGER_CHANGED,
) = RoundState
REACHABLE, UNREACHABLE, DEPARTED = Presence
(
    STARTED_EXACT,
    STARTED_REACHABLE,
    STARTED_UNREACHABLE,
    SNAPSHOT,
    REPORT,
    MESSAGE,
    TRIGGER_SENT,
    NEW_TRIGGER,
    TIMED_OUT,
    LEFT,
) = SiteEvent

_ROUND_STARTS = {
    STARTED_EXACT: NOT_SENT,
    STARTED_REACHABLE: AWAITING_SNAPSHOT,
    STARTED_UNREACHABLE: MISSED_START,
}

ROUND_TABLE: dict[RoundState, dict[SiteEvent, RoundState]] = {
    CURRENT: {
        **_ROUND_STARTS,
        SNAPSHOT: CURRENT,
        REPORT: CURRENT,
        TRIGGER_SENT: CURRENT,
        NEW_TRIGGER: TRIGGER_CHANGED,
        TIMED_OUT: CURRENT,
        LEFT: CURRENT,
    },
    TRIGGER_CHANGED: {
        **_ROUND_STARTS,
        SNAPSHOT: TRIGGER_CHANGED,
        REPORT: TRIGGER_CHANGED,
        TRIGGER_SENT: TRIGGER_CHANGED,
        NEW_TRIGGER: TRIGGER_CHANGED,
        TIMED_OUT: TRIGGER_CHANGED,
        LEFT: TRIGGER_CHANGED,
    },
    NOT_SENT: {
        **_ROUND_STARTS,
        # A message of a round that was not sent: only if the coordinator lost rounds, as from an old backup.
        SNAPSHOT: CURRENT,
        REPORT: CURRENT,
        TRIGGER_SENT: CURRENT,
        NEW_TRIGGER: TRIGGER_CHANGED,
        TIMED_OUT: NOT_SENT,
        LEFT: NOT_SENT,
    },
    AWAITING_SNAPSHOT: {
        **_ROUND_STARTS,
        SNAPSHOT: CURRENT,
        REPORT: AWAITING_SNAPSHOT,  # the report overtook its snapshot
        TIMED_OUT: MISSED_START,
        LEFT: CURRENT,
    },
    MISSED_START: {
        **_ROUND_STARTS,
        SNAPSHOT: CURRENT,
        REPORT: START_ASSUMED,
        TRIGGER_SENT: START_ASSUMED,
        TIMED_OUT: MISSED_START,
        LEFT: MISSED_START,
    },
    START_ASSUMED: {
        **_ROUND_STARTS,
        SNAPSHOT: CURRENT,
        REPORT: START_ASSUMED,
        TRIGGER_SENT: START_ASSUMED,
        NEW_TRIGGER: START_ASSUMED_TRIGGER_CHANGED,
        TIMED_OUT: START_ASSUMED,
        LEFT: START_ASSUMED,
    },
    START_ASSUMED_TRIGGER_CHANGED: {
        **_ROUND_STARTS,
        SNAPSHOT: TRIGGER_CHANGED,
        REPORT: START_ASSUMED_TRIGGER_CHANGED,
        TRIGGER_SENT: START_ASSUMED_TRIGGER_CHANGED,
        NEW_TRIGGER: START_ASSUMED_TRIGGER_CHANGED,
        TIMED_OUT: START_ASSUMED_TRIGGER_CHANGED,
        LEFT: START_ASSUMED_TRIGGER_CHANGED,
    },
}

PRESENCE_TABLE: dict[Presence, dict[SiteEvent, Presence]] = {
    REACHABLE: {
        MESSAGE: REACHABLE,
        TIMED_OUT: UNREACHABLE,
        LEFT: DEPARTED,
    },
    UNREACHABLE: {
        MESSAGE: REACHABLE,
        TIMED_OUT: UNREACHABLE,
        LEFT: DEPARTED,
    },
    DEPARTED: {  # its messages may still arrive
        MESSAGE: DEPARTED,
        TIMED_OUT: DEPARTED,
        LEFT: DEPARTED,
    },
}
