"""`follow`: answers across lost connections, until the coordinator refuses."""

from collections.abc import Iterator
from typing import Any

import pytest

from countless.client import watch
from countless.client.watch import READ_TIMEOUT_S, follow
from countless.errors import ServiceError
from countless.server.http.answers.published import WATCH_HEARTBEAT_S

LOST, GONE = ServiceError("connection lost: reset"), ServiceError("there is no counter 'hits'", 404)
AWAY = ServiceError("no coordinator at http://127.0.0.1:9")


class Stream:
    """Its answers; then it ends, or raises."""

    def __init__(self, *events: int | ServiceError) -> None:
        self._events = iter(events)
        self.closed = False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for event in self._events:
            if isinstance(event, ServiceError):
                raise event
            yield {"estimate": event}

    def close(self) -> None:
        self.closed = True


class Api:
    def __init__(self, *attempts: Stream | ServiceError) -> None:
        self._attempts = iter(attempts)

    def watch(self, counter: str, read_timeout: float) -> Stream:
        assert read_timeout > 2 * WATCH_HEARTBEAT_S  # one heartbeat may be lost
        attempt = next(self._attempts)
        if isinstance(attempt, ServiceError):
            raise attempt
        return attempt


def test_answers_continue_after_a_restart_until_the_counter_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "sleep", lambda seconds: None)
    streams = Stream(1, 2, LOST), Stream(3), Stream(4)
    api: Any = Api(streams[0], AWAY, AWAY, streams[1], ServiceError("busy", 503), streams[2], GONE)
    lost: list[str] = []
    answers = follow(api, "hits", lost.append)
    assert [next(answers)["estimate"] for _ in range(4)] == [1, 2, 3, 4]
    with pytest.raises(ServiceError, match="there is no counter"):
        next(answers)
    assert lost == ["connection lost: reset", *["connection closed by the coordinator"] * 2]
    assert all(stream.closed for stream in streams)
    assert READ_TIMEOUT_S == 3 * WATCH_HEARTBEAT_S


@pytest.mark.parametrize("problem", [AWAY, GONE])
def test_first_connection_that_fails_is_an_error(problem: ServiceError) -> None:
    api: Any = Api(problem)
    with pytest.raises(ServiceError, match=str(problem)):
        next(follow(api, "hits", print))
