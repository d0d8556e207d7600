"""The settings: the section `countless` of LiteLLM's `callback_settings`, or the arguments of `SdkLimits`."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from countless.client.budgets.requests import WAIT_S
from countless.errors import InvalidParameter
from countless.limiting.charge import fields_of, part_of_name


class Measure(StrEnum):
    """The kinds of units, in the order in which a call asks for them."""

    IN_FLIGHT = "in_flight"
    REQUESTS = "requests"
    TOKENS = "tokens"
    MONEY = "money"  # millionths of a dollar


class LiteLLMSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Names of budgets for each measure. Fields in them are those of the call: `keys/{key}`.

    Args:
        max_tokens: What a request may generate that does not say so itself; it is sent to the model.
        wait: Seconds to wait for the coordinator, if this process has too few units.
        expires_in: Seconds after which a call that has never ended counts as spent.
        on_unreachable: While a budget is not known, `refuse` refuses and `allow` admits.
    """

    in_flight: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    money: tuple[str, ...] = ()
    max_tokens: Annotated[int, Meta(ge=1)] = 1024
    wait: Annotated[float, Meta(ge=0)] = WAIT_S
    expires_in: Annotated[float, Meta(gt=0)] = 3600.0
    on_unreachable: Literal["refuse", "allow"] = "refuse"

    def names(self, values: Mapping[str, str | None]) -> dict[Measure, tuple[str, ...]]:
        """The budgets of a call. One with a field that the call has not, such as a team, is left out."""
        known = {field: part_of_name(field, value) for field, value in values.items() if value}
        found = {}
        for measure in Measure:
            templates = [each for each in self.templates(measure) if known.keys() >= set(fields_of(each))]
            if templates:
                found[measure] = tuple(dict.fromkeys(each.format_map(known) for each in templates))
        return found

    def templates(self, measure: Measure) -> tuple[str, ...]:
        templates: tuple[str, ...] = getattr(self, measure)
        return templates


def settings_from(given: Mapping[str, Any] | None, place: str, known: frozenset[str] | None = None) -> LiteLLMSettings:
    """Raise InvalidParameter for settings that name no budget, or a field that no call has.

    >>> settings_from({"tokens": ["keys/{kye}"]}, "countless", frozenset({"key"}))
    Traceback (most recent call last):
    countless.errors.InvalidParameter: countless.tokens = 'keys/{kye}' is not allowed: countless.tokens must be a \
name whose fields are of these: key
    """
    try:
        settings = msgspec.convert(dict(given or {}), LiteLLMSettings)
    except msgspec.ValidationError as problem:
        raise InvalidParameter(place, given, f"a section of names of budgets and options: {problem}") from None
    templates = [(measure, each) for measure in Measure for each in settings.templates(measure)]
    if not templates:
        raise InvalidParameter(place, given, f"a section with names of budgets in one of: {', '.join(Measure)}")
    for measure, template in templates:
        if known is not None and not known.issuperset(fields_of(template)):
            allowed = f"a name whose fields are of these: {', '.join(sorted(known))}"
            raise InvalidParameter(f"{place}.{measure}", template, allowed)
    return settings
