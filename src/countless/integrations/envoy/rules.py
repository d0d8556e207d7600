"""The section `envoy` of the agent's file: which descriptors of Envoy spend from which budgets.

[envoy]
unknown = "pass"

[[envoy.limits]]
domain = "edge"
descriptor = ["generic_key=api", "x-api-key"]
secret = ["x-api-key"]
budget = "keys/{x_api_key}"
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from countless.client.client import Client
from countless.errors import InvalidParameter
from countless.limiting.charge import Values, digest
from countless.limiting.limit import Limit

DEFAULT_LISTEN = "127.0.0.1:2688"
WAIT_S = 0.2

Entries = Sequence[tuple[str, str]]


class LimitRule(Struct, frozen=True, forbid_unknown_fields=True):
    """A limit, and the descriptors that it is for.

    Args:
        domain: The `domain` of Envoy's filter.
        descriptor: Keys of the entries, in their order; `key=value` for an entry that must have this value.
        budget: The name. Fields in it are values of entries, by key; other characters than letters, digits and `_`
            are `_` in a field.
        secret: Keys whose values must not be seen in names: they are replaced by 16 digits of their SHA-256.
        wait: Seconds to wait for the coordinator, if the agent has too few units. Envoy's own `timeout` must be longer.
        on_unreachable: While the budget is not known, `refuse` refuses and `allow` admits.
        shadow: Admit everything; count and log what would have been refused.
        late: Hits are reported when they have happened (`apply_on_stream_done`): if less is left, that is taken.
        policy: Name of the limit in `RateLimit` fields and logs.
    """

    domain: str
    descriptor: Annotated[tuple[str, ...], Meta(min_length=1)]
    budget: str
    secret: tuple[str, ...] = ()
    wait: Annotated[float, Meta(ge=0)] = WAIT_S
    on_unreachable: Literal["refuse", "allow"] = "refuse"
    shadow: bool = False
    late: bool = False
    policy: str = "default"


class EnvoySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The section.

    Args:
        limits: The first that a descriptor matches decides.
        listen: Address and port, or `unix:` and a path.
        unknown: What happens to a request with a descriptor that no limit is for.
    """

    limits: Annotated[tuple[LimitRule, ...], Meta(min_length=1)]
    listen: str = DEFAULT_LISTEN
    unknown: Literal["pass", "refuse"] = "pass"


class Match(NamedTuple):
    """The limit of a descriptor, and the fields of its budget's name."""

    limit: Limit
    values: Values
    late: bool


class _Rule:
    def __init__(self, rule: LimitRule, client: Client) -> None:
        self._late = rule.late
        entries = [entry.partition("=") for entry in rule.descriptor]
        self.keys = tuple(key for key, _, _ in entries)
        self._fixed = tuple((place, value) for place, (_, equals, value) in enumerate(entries) if equals)
        self._fields = tuple((place, _field(key), key in rule.secret) for place, key in enumerate(self.keys))
        self.limit = Limit(
            client, rule.budget, wait=rule.wait, on_unreachable=rule.on_unreachable, shadow=rule.shadow,
            policy=rule.policy,
        )  # fmt: skip
        names = [name for _, name, _ in self._fields]
        if any(names.count(field) != 1 for field in self.limit.fields):
            allowed = f"a name whose fields are keys of its descriptor, each of them once: {', '.join(names)}"
            raise InvalidParameter("budget", rule.budget, allowed)
        if unknown := [key for key in rule.secret if key not in self.keys]:
            raise InvalidParameter("secret", unknown[0], f"one of: {', '.join(self.keys)}")

    def match(self, entries: Entries) -> Match | None:
        if any(entries[place][1] != value for place, value in self._fixed):
            return None
        values = {
            name: digest(entries[place][1].encode()) if secret else entries[place][1]
            for place, name, secret in self._fields
        }
        return Match(self.limit, values, self._late)


class EnvoyRules:
    def __init__(self, settings: EnvoySettings, client: Client) -> None:
        self.passes_unknown = settings.unknown == "pass"
        self._rules: dict[tuple[str, tuple[str, ...]], list[_Rule]] = {}
        for place, rule in enumerate(settings.limits):
            try:
                made = _Rule(rule, client)
            except InvalidParameter as problem:
                where = f"envoy.limits[{place}].{problem.parameter}"
                raise InvalidParameter(where, problem.value, problem.allowed) from None
            self._rules.setdefault((rule.domain, made.keys), []).append(made)

    def find(self, domain: str, entries: Entries) -> Match | None:
        rules = self._rules.get((domain, tuple(key for key, _ in entries)), ())
        return next((found for rule in rules if (found := rule.match(entries))), None)


def _field(key: str) -> str:
    return re.sub(r"\W", "_", key)


def envoy_settings(section: Mapping[str, Any]) -> EnvoySettings:
    """
    >>> envoy_settings({"limits": [{"domain": "edge", "descriptor": ["path"], "budget": "all", "wait": "long"}]})
    Traceback (most recent call last):
    countless.errors.InvalidParameter: config: section envoy: Expected `float`, got `str` - at `$.limits[0].wait`
    """
    try:
        return msgspec.convert(section, EnvoySettings)
    except msgspec.ValidationError as problem:
        raise InvalidParameter("config", section, message=f"config: section envoy: {problem}") from None
