"""What is lost when a process is killed: SIGKILL in the middle of a workload, once for the sites, once for the server.

The sites of a trial live in a process of their own, which counts up to a virtual moment and is killed there; what it
had counted is compared with what the server knows. Then the same with the server: it is killed, another one starts in
its place at the same moment, the sites go on, and at the end the totals are compared.
"""

from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory

from race.contestants.base import Backend, Bill, Case, Contestant, News
from race.contestants.registry import VICTIMS
from race.play import Player
from race.workloads import Workload

MOMENT = 0.563  # of the workload's time: not where any flush happens to fall


@dataclass(frozen=True, slots=True)
class Loss:
    """Events that were counted and are in no total."""

    contestant: str
    workload: str
    sites_killed: int  # with all sites at once
    counted_until_then: int
    server_killed: int
    counted_in_all: int


def losses(key: str, workload: Workload, case: Case) -> Loss:
    """Both trials of one contestant."""
    contestant = VICTIMS[key]
    with TemporaryDirectory() as first, TemporaryDirectory() as second:
        counted, known = _kill_sites(key, workload, case._replace(folder=first))
        all_counted, all_known = _kill_server(contestant, workload, case._replace(folder=second))
    return Loss(contestant.name, workload.name, counted - known, counted, all_counted - all_known, all_counted)


def _kill_sites(key: str, workload: Workload, case: Case) -> tuple[int, int]:
    spawn = get_context("spawn")
    with VICTIMS[key].backend(case) as backend:
        here, there = spawn.Pipe()
        process = spawn.Process(target=_victim, args=(key, backend.address, workload, case, there))
        process.start()
        there.close()
        backend.targets = here.recv()
        message = here.recv()
        while message[0] == "tick":
            here.send(backend.tick(message[1]))
            message = here.recv()
        process.kill()
        process.join()
        here.close()
        heir = VICTIMS[key].heir
        if heir is not None:
            heir(backend.address, case._replace(sites=1)).close()
        return int(message[1]), backend.total()


def _victim(key: str, address: str, workload: Workload, case: Case, parent: Connection) -> None:
    """Count up to the moment, say how much, and wait for the end."""
    contestant = VICTIMS[key]
    fleet = contestant.fleet(address, case)
    parent.send(fleet.targets)
    player = Player(fleet, Elsewhere(parent), workload, contestant.period)
    player.play(MOMENT * workload.seconds)
    fleet.settle()
    parent.send(("counted", player.judge.total))
    parent.recv()


def _kill_server(contestant: Contestant, workload: Workload, case: Case) -> tuple[int, int]:
    with contestant.backend(case) as backend:
        with (contestant.stand_in or contestant.fleet)(backend.address, case) as fleet:
            backend.targets = fleet.targets
            player = Player(fleet, backend, workload, contestant.period)
            player.play(MOMENT * workload.seconds)
            fleet.settle()
            backend.kill()
            player.play()
            player.tick(workload.seconds + contestant.period)  # the next flush, whenever that would be
        return player.judge.total, backend.total()


class Elsewhere(Backend):
    """The backend, seen from the process of the sites: its timers go off in the other one."""

    def __init__(self, parent: Connection) -> None:
        self._parent = parent

    def tick(self, now: float) -> News:
        """Let it happen over there."""
        self._parent.send(("tick", now))
        news: News = self._parent.recv()
        return news

    def total(self) -> int:
        """Not known here."""
        raise NotImplementedError

    def kill(self) -> None:
        """Not from here."""
        raise NotImplementedError

    def bill(self) -> Bill:
        """Not measured here."""
        return Bill(0, 0)

    def close(self) -> None:
        """Nothing to close."""
