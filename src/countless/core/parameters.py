"""Which values of alpha and of probabilities are accepted: the same rule in the library, the service and the lab."""

from countless.errors import InvalidParameter

# Below these the formulas of the plans leave the range of doubles.
MIN_ALPHA = 1e-300
MIN_PROBABILITY = 2.0**-1000


def require_alpha(alpha: object, minimum: float = MIN_ALPHA) -> None:
    """Raise InvalidParameter unless `alpha` is a number below 1/2 and at least `minimum`."""
    _require("alpha", alpha, minimum, 0.5, "1/2")


def require_probability(parameter: str, value: object, minimum: float = MIN_PROBABILITY) -> None:
    """Raise InvalidParameter unless `value` (delta, eta) is a number below 1 and at least `minimum`."""
    _require(parameter, value, minimum, 1.0, "1")


def require_integer(parameter: str, value: object, minimum: int, maximum: int | None = None) -> None:
    allowed = f"an integer of at least {minimum}" if maximum is None else f"an integer from {minimum} to {maximum}"
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise InvalidParameter(parameter, value, allowed)
    if maximum is not None and value > maximum:
        raise InvalidParameter(parameter, value, allowed)


def require_bool(parameter: str, value: object) -> None:
    """Raise InvalidParameter for anything else: the text "false" would be true."""
    if not isinstance(value, bool):
        raise InvalidParameter(parameter, value, "True or False")


def require_seconds(parameter: str, value: object) -> None:
    """Raise InvalidParameter unless `value` can be waited: a number of at least 0, or infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidParameter(parameter, value, "a number of seconds from 0; inf waits without a limit")


def _require(parameter: str, value: object, minimum: float, top: float, top_text: str) -> None:
    allowed = f"a number (int or float) between 0 and {top_text}, both excluded"
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < top:
        raise InvalidParameter(parameter, value, allowed)
    if value < minimum:
        raise InvalidParameter(parameter, value, f"{allowed} (and at least {minimum:.3g})")
