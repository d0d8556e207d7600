"""What fields and attributes of public types mean, where no docstring can say it."""

from typing import NamedTuple

MEANINGS = {
    "estimate": "the published number",
    "lower": "the truth is at least this",
    "upper": "the truth is at most this",
    "alpha": "the relative error that is allowed",
    "delta": "the probability that the bounds are ever wrong",
    "state": "how sure it is: `exact`, `holding`, `learning`, `degraded`; of a window `open`, `complete`, `incomplete`",
    "round": "the number of the current round",
    "sites": "how many sites there are",
    "scheme": "the scheme in force",
    "silent": "the sites that cannot be reached",
    "floor": "the error is at most alpha times the larger of the count and this",
    "published": "the largest estimate so far, which never falls",
    "known": "the smallest and the largest total that the reports allow; None: only alpha says",
    "counter": "its name",
    "as_of": "the time of reading",
    "per": "length of its windows or periods; None: it has none, and a limit is for all time",
    "tz": "time zone of its periods",
    "anchor": "the second, minute, hour or day of month at which a period begins; None: the first",
    "slack": "the share of the limit that may be left when a request is refused",
    "kind": "`spending` or `in_flight`",
    "on_loss": "`charge` or `free`",
    "on_unreachable": "`refuse`, `wait` or `overdraft`",
    "max_names": "of a template: how many names may follow it at the same time",
    "template": "the template whose rule it is, such as `keys/*`",
    "rolling": "the limit is for every interval of this length, in seconds or as `1m`; None: it is not rolling",
    "window": "which window, as it was asked for",
    "start": "its beginning",
    "end": "the first moment after it",
    "complete": "it is over, and every site has delivered its last count: this is final",
    "known_since": "when the record of the past begins, if that is later than `start`; else None",
    "first_window": "when the first window of the counter began, if that is kept: before it nothing was counted",
    "over": "the length of the span",
    "rate": "events per second, with bounds",
    "share": "the share that was asked for",
    "quantiles": "one for each share that was asked for",
    "series": "the labelled series, the largest first",
    "up": "messages from sites to the coordinator",
    "down": "messages from the coordinator to sites",
    "bytes": "their encoded size; None unless `count_bytes` was given",
    "lost": "sites that were given up with events that may be missing",
    "waiting": "sites that have not delivered their last count yet",
    "period": "the number of the window",
    "reason": "why it was refused; None if it was allowed",
    "retry_after": "seconds until it may succeed, if they are known",
    "limit": "units that all sites may spend together",
    "leaked": "units that are counted as spent and may not have been",
    "label": "the label; None for all together",
    "labels": "the counts of labels, the largest first",
    "overflow": "events of labels beyond the cap",
    "total": "the count of all labels together",
    "q": "the share that was asked for",
    "value": "the value that was asked for",
    "exact": "True if the bounds are equal, and nothing is missing.",
    "held": "Units that are reserved.",
    "name": "Its name.",
    "contains": "True if a count is between the bounds.",
    "site": "Return the site of this name: call its `observe` for every value.",
}
ATTRIBUTES: dict[str, dict[str, str]] = {
    "Counter": {
        "add": "",
        "inc": "The same as `add`.",
        "name": "Its name, with its labels.",
        "overflow_count": "How often `labels` returned the overflow series.",
    },
    "ClientDistribution": {"name": "Its name."},
    "Watch": {
        "verdict": "`possibly` or `certainly`; None while the total is certainly below the threshold.",
        "last_error": "Why no answers arrive; None while they do.",
    },
    "Hold": {"units": "How many units it holds.", "expires_in": "Seconds; None: never."},
    "CountingSite": {"add": "", "inc": "The same as `add`."},
    "Family": {"name": "Its name."},
    "LabelSite": {"inc": "The same as `add`."},
    "Distribution": {"name": "Its name."},
    "InvalidParameter": {
        "parameter": "The name of the parameter.",
        "value": "What it was.",
        "allowed": "What it must be.",
    },
    "UnknownName": {"hint": "What may have been meant, such as ` (did you mean 'a'?)`; empty if there is none."},
    "LimitExceeded": {
        "budget": "The name of the budget.",
        "units": "How many were wanted.",
        "retry_after": "Seconds until more is available, if that is known.",
    },
    "UnknownBudget": {"budget": "Its name."},
    "CounterRefused": {"reasons": "Why, by counter."},
    "ServiceError": {"status": "Of the coordinator's answer; None if there was none."},
}


class Same(NamedTuple):
    """Members of a type that another one, described elsewhere, has too."""

    name: str
    link: str
    names: tuple[str, ...]


_ANSWER = ("alpha", "delta", "round", "sites", "scheme", "silent", "bounds", "contains")
SAME = {
    "Client": Same(
        "Reader", "answers.md#reader", ("answer", "aanswer", "window", "rolling", "rate", "top", "quantile")
    ),
    "TotalAnswer": Same("Answer", "#answer", _ANSWER),
    "Window": Same("SpanCount", "#spancount", ("start", "end", "lost", "waiting", "exact")),
    "Budget": Same("Tracker", "#tracker", ("sites", "site", "add_site")),
    "Family": Same("Tracker", "#tracker", ("sites", "messages", "site", "add_site")),
    "Distribution": Same("Tracker", "#tracker", ("site", "add_site")),
}
