"""Passes the messages that the core returns on to the connections of their sites, by way of the commit pipeline."""

from countless.core.messages import Outbox, SiteId, StartRound
from countless.server.kinds.counter import TrackedCounter
from countless.server.sessions.session_table import SessionTable
from countless.server.storage.commit import CommitPipeline


class Dispatcher:
    def __init__(self, sessions: SessionTable, pipeline: CommitPipeline) -> None:
        self._sessions = sessions
        self._pipeline = pipeline

    def dispatch(self, counter: TrackedCounter, outbox: Outbox) -> None:
        """Messages to sites without a connection are dropped: the core sends them again when the site joins."""
        counter.mark()
        for site_id, message in outbox:
            site, incarnation, part = site_id
            key = counter.key.of_part(part) if part else counter.key
            session = self._sessions.get(SiteId(site, incarnation) if part else site_id)
            if session is None:
                continue
            if isinstance(message, StartRound):
                session.owed.ask(key)
            if session.connection is None or key in session.ignored:
                continue
            counter.traffic.down += 1
            self._pipeline.send(session.connection, message._replace(counter=str(key)) if part else message)
