"""Passes the messages that the core returns on to the connections of their sites, by way of the commit pipeline."""

from countless.core.messages import DownMessage, Outbox, StartRound
from countless.core.triggers import GeometricGrowth
from countless.server.sessions.counter import Counter
from countless.server.sessions.labels import client_key
from countless.server.sessions.session_table import SessionTable
from countless.server.storage.commit import CommitPipeline
from countless.wire.frames import OLDEST_VERSION


class Dispatcher:
    def __init__(self, sessions: SessionTable, pipeline: CommitPipeline) -> None:
        self._sessions = sessions
        self._pipeline = pipeline

    def dispatch(self, counter: Counter, outbox: Outbox) -> None:
        """Messages to sites without a connection are dropped: the core sends them again when the site joins."""
        self._pipeline.pending.mark_counter(counter.name)
        for site_id, message in outbox:
            name, client_id = client_key(counter.name, site_id)
            session = self._sessions.get(client_id)
            if session is None:
                continue
            if isinstance(message, StartRound):
                session.owed.ask(name)
            if session.connection is None or name in session.ignored:
                continue
            counter.traffic.down += 1
            if session.version == OLDEST_VERSION:
                message = _for_oldest_version(message)
            self._pipeline.send(session.connection, message if name == counter.name else message._replace(counter=name))


def _for_oldest_version(message: DownMessage) -> DownMessage:
    """Without `extra` a site reports sooner than it must; without a phase up to one event later, which every report
    covers. What the coordinator concludes from an early report needs a trigger that never had an `extra`.
    """
    if not isinstance(message.trigger, GeometricGrowth):
        return message
    return message._replace(trigger=GeometricGrowth(message.trigger.alpha))
