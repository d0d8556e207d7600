"""The bodies of requests and responses. Handlers use them, and the OpenAPI document is generated from them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, get_args

from msgspec import UNSET, Meta, Struct

from countless.core.answer import State
from countless.core.calendar import PERIODS
from countless.core.family.rule import DEFAULT_KEEP as FAMILY_KEEP
from countless.core.family.rule import LABELS, FamilyRule
from countless.core.periods.window import DEFAULT_KEEP, MAX_FLOOR, WindowRule
from countless.errors import InvalidParameter
from countless.schemes.registry import ADVERSARIES, SchemeName
from countless.server.settings import MAX_COUNT, MIN_ALPHA, MIN_DELTA, Config
from countless.wire.keys import MAX_NAME_CHARS


def described(description: str, **schema: Any) -> Meta:
    """For the OpenAPI document only: values are checked where they are used, with a better message than msgspec's."""
    return Meta(description=description, extra_json_schema=schema)


Moment = Annotated[str, described("The time of reading, never the time of a report.", format="date-time")]
Per = Annotated[Any, described("The length of a period; null: there are none.", enum=[*PERIODS, None], default=None)]
Zone = Annotated[
    Any, described("The time zone of the periods.", type="string", default="UTC", examples=["Europe/Berlin"])
]
Anchor = Annotated[
    Any,
    described(
        "At which second of a minute, minute of an hour, hour of a day or day of a month a period begins. "
        "Null: at the first. A month that is too short begins on its last day.",
        type=["integer", "null"],
        minimum=0,
        maximum=59,
    ),
]
Seen = Annotated[str, described("In the time zone of the windows, or UTC.", format="date-time")]


def _numbers(keep: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {per}s" for per, n in keep.items())


Name = Annotated[str, described("Printable characters.", minLength=1, maxLength=MAX_NAME_CHARS)]
Alpha = Annotated[float, described("Largest relative error of an answer.", minimum=MIN_ALPHA, exclusiveMaximum=0.5)]
Delta = Annotated[
    float,
    described("Largest probability that any answer is out of its bounds.", minimum=MIN_DELTA, exclusiveMaximum=1),
]
Scheme = Annotated[str, described("The algorithm that decides when sites report.", enum=list(get_args(SchemeName)))]
Adversary = Annotated[str, described("The most that the counted traffic may react to.", enum=list(ADVERSARIES))]
Cap = Annotated[int, described("Labelled series; more go to the overflow series.", minimum=0, maximum=MAX_COUNT)]
Floor = Annotated[
    Any,
    described(
        "The error of a window of n events is at most alpha * max(n, floor): a larger floor saves messages. "
        "Null: a third of the last closed window.",
        type=["integer", "null"],
        minimum=0,
        maximum=MAX_FLOOR,
    ),
]
Keep = Annotated[
    Any,
    described(
        f"How many closed windows are kept. Null: {_numbers(DEFAULT_KEEP)}; of a family {_numbers(FAMILY_KEEP)}.",
        type=["integer", "null"],
        minimum=1,
    ),
]


class Rules(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The configuration of a counter. A field that is left out keeps its value, or its default in a new counter.

    With `per` it has windows. A counter without gets them while no site counts it, from the next edge on. Then `per`,
    `tz` and `anchor` cannot be changed; other changes are for the windows to come. A family has windows and `keep`.
    """

    alpha: Alpha | None = None
    delta: Delta | None = None
    scheme: Scheme | None = None
    adversary: Adversary | None = None
    label_cap: Cap | None = None
    per: Annotated[Any, described("There is a window for each of these periods.", enum=[*PERIODS, None])] = None
    tz: Annotated[Any, described("The time zone of the windows; UTC if left out.", type=["string", "null"])] = None
    anchor: Anchor = None
    floor: Floor = UNSET
    keep: Keep = UNSET

    def applied_to(self, spec: Config | FamilyRule) -> Config | FamilyRule:
        plain = {name: getattr(self, name) for name in ("alpha", "delta", "scheme", "adversary", "label_cap")}
        given = {name: value for name, value in plain.items() if value is not None}
        return spec.changed(given, self._windows(spec.windows))

    def _windows(self, rule: WindowRule | None) -> WindowRule | None:
        calendar = {name: getattr(self, name) for name in ("per", "tz", "anchor")}
        given = {name: value for name, value in calendar.items() if value is not None}
        given |= {name: value for name in ("floor", "keep") if (value := getattr(self, name)) is not UNSET}
        if not given:
            return rule
        if rule is None and self.per is None:
            name, value = next(iter(given.items()))
            raise InvalidParameter(name, value, message=f"{name} needs windows: give per, too, such as 'hour'")
        return WindowRule(**given) if rule is None else replace(rule, **given)


class NewCounter(Rules, kw_only=True):
    """A counter with its configuration, or a family: that has `epsilon`, and with `per` also `tz`, `anchor`, `keep`."""

    name: Name
    family: bool = False
    epsilon: (
        Annotated[
            float,
            described("Of a family: the largest error of a label, as a share of the total.", exclusiveMaximum=0.5),
        ]
        | None
    ) = None

    def spec(self, defaults: Config) -> Config | FamilyRule:
        """The spec of the counter, or the family."""
        if self.family:
            return self.applied_to(FamilyRule(LABELS, 0.01 if self.epsilon is None else self.epsilon))
        if self.epsilon is not None:
            message = "epsilon can't be used for a counter, which has alpha"
            raise InvalidParameter("epsilon", self.epsilon, message=message)
        return self.applied_to(defaults)


class PublicAnswer(Struct):
    """A total with its bounds: everything that the read scope may see."""

    counter: str
    estimate: int
    lower: int
    upper: int
    state: State
    as_of: Moment
    per: Annotated[str | None, described("The windows of this counter are these periods; null: it has none.")] = None


class UpDown(Struct):
    """`up`: from sites; `down`: to sites."""

    up: int
    down: int


class IncompleteWindow(Struct):
    """A window that has ended, and may have more events than are known."""

    start: Seen
    end: str
    waiting_for: Annotated[list[str], described("Sites that have not delivered their last count.")]
    lost: Annotated[int, described("Sites that ended without a last count: the window stays incomplete.")]


class WindowsStatus(Struct):
    """The rule of a counter with windows, and its windows that are not complete."""

    per: str
    tz: str
    anchor: int
    floor: Annotated[int | None, described("Null: a third of the last closed window.")]
    keep: int
    incomplete: Annotated[list[IncompleteWindow], described("The youngest, oldest first.")]


class OperatorAnswer(PublicAnswer, kw_only=True):
    """The answer with its round, sites and messages: for operators only."""

    alpha: float
    delta: float
    adversary: str
    configured_scheme: str
    label_cap: int
    scheme: str
    round: int
    sites: int
    silent: list[str]
    known: int
    messages: UpDown
    bytes: UpDown
    messages_to_double: int
    windows: Annotated[WindowsStatus | None, described("Null for a counter without windows.")]


class AnswerPage(Struct):
    """Counters in the order of their names."""

    counters: list[PublicAnswer]
    next: Annotated[str | None, described("The value of `after` for the next page; null on the last page.")]


class TopRow(Struct):
    """A labelled series of a counter. `NAME` itself stands for the events without labels."""

    counter: Annotated[str, described("The name of the series.", examples=['requests{tenant="acme"}'])]
    estimate: int
    lower: int
    upper: int
    state: State


class TopAnswer(Struct):
    """The series that may have a share of a counter's count, the largest first, and the count of all together."""

    counter: str
    share: float
    estimate: int
    lower: int
    upper: int
    state: State
    series: list[TopRow]
    as_of: Moment


class QuantileRow(Struct):
    """The value with a share `q` of all observations at or below it."""

    q: float
    estimate: float
    lower: float
    upper: Annotated[float | None, described("Null: the observations that are not reported yet may have any value.")]


class RankRow(Struct):
    """The number of observations that are at most `value`."""

    value: float
    lower: int
    upper: int


class QuantileAnswer(Struct):
    """Quantiles of a distribution, and ranks of values; `estimate`, `lower` and `upper` count its observations.

    The rank of an estimated quantile is within `epsilon` times the observations of the wanted one, and its value within
    a share `accuracy` of one of that rank. No rows: there are no observations.
    """

    counter: str
    estimate: int
    lower: int
    upper: int
    state: State
    epsilon: float
    accuracy: float
    quantiles: list[QuantileRow]
    ranks: list[RankRow]
    as_of: Moment


class SiteStatus(Struct):
    """One incarnation of a site."""

    site: str
    state: Annotated[str, described("Away: disconnected. Silent: timed out.", enum=["connected", "away", "silent"])]
    counters: int
    seconds_since_heard: float


class SiteList(Struct):
    """Every incarnation of every site."""

    sites: list[SiteStatus]


class DropResult(Struct):
    """The number of incarnations that were dropped."""

    forgotten: int


class Live(Struct):
    """The process responds; `time` is its clock."""

    live: bool
    time: str


class Ready(Struct):
    """True if totals can be trusted; otherwise the reasons."""

    ready: bool
    problems: list[str]


class Problem(Struct):
    """An error message."""

    error: str
