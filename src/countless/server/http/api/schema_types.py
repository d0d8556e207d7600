"""Types of fields that several bodies share."""

from typing import Annotated, Any

from msgspec import Meta

from countless.core.calendar import PERIODS


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
