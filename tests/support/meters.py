"""A meter nobody listens to."""

from threading import RLock

from countless.client.meter import Meter
from countless.core.messages import UpMessage
from countless.core.site import Site


def _forget(site: Site, messages: tuple[UpMessage, ...]) -> None:
    pass


def unheard(site: Site) -> Meter:
    return Meter(site, RLock(), _forget)
