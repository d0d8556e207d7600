"""Mistakes with copies of a state_dir, as they once were in the code; seeds must find each."""

from itertools import count

import pytest

from countless.client.durable import count_file
from countless.client.session import protocol
from countless.server.connection import Connection
from countless.server.sessions.session_table import Session
from countless.server.site_server import SiteServer
from countless.wire.frames import Inherited, UpItem
from countless.wire.incarnations import successor_of


def believes_that_a_site_has_left_when_a_copy_of_it_has(patch: pytest.MonkeyPatch) -> None:
    """Who delivers is not asked, and what it leaves is left for good."""
    original = SiteServer.on_frame

    def on_frame(self: SiteServer, session: Session, connection: Connection, items: list[UpItem], size: int) -> None:
        original(self, session, connection, [each for each in items if not isinstance(each, Inherited)], size)

    patch.setattr(SiteServer, "on_frame", on_frame)


def hands_in_from_a_copy_on_the_same_boot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(count_file, "boot_word", lambda descriptor: 1)


def continues_every_copy_as_an_incarnation_of_its_own(patch: pytest.MonkeyPatch) -> None:
    copies = count(1)
    patch.setattr(protocol, "successor_of", lambda number, least: successor_of(number + next(copies), least))
