"""A counter that publishes what a test tells it, and a recorder with a virtual clock."""

from types import SimpleNamespace
from typing import Any

from countless.core.answer import Answer, State
from countless.server.http.history.history import History, Recorder
from countless.server.sessions.readable import MessageCount, TotalOnly
from countless.server.storage.health import SaveHealth

ALPHA = 0.05


class Published(TotalOnly):
    """As much of a counter as the recorder reads."""

    def __init__(self, began: float, name: str = "hits", new: bool = True) -> None:
        self.name = name
        self.traffic = MessageCount(0, new, began)
        self.health = SaveHealth()
        self.publish(0)

    def publish(self, estimate: float, state: State = State.HOLDING, alpha: float = ALPHA) -> None:
        self._answer = Answer(estimate, alpha, 0.1, state, 0, 1, "deterministic")

    @property
    def published_answer(self) -> Answer:
        return self._answer


class Recording:
    """The recorder of one counter, at a time that tests set."""

    def __init__(self, began: float, new: bool = True) -> None:
        self.time = began
        self.counter: Any = Published(began, new=new)
        server: Any = SimpleNamespace(by_name={"hits": self.counter})
        self.server = server
        self.recorder = Recorder(server, clock=lambda: self.time, steady=lambda: self.time)

    @property
    def history(self) -> History:
        return self.recorder.for_counter(self.counter)
