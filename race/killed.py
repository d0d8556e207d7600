"""Events that are lost when a process is killed by SIGKILL in the middle of a workload.

First the sites: they run in a separate process, which counts up to a virtual time and is killed there; what it had
counted is compared with what the server knows. Then the server: it is killed and restarted at that time, the sites
continue, and the totals are compared at the end.
"""

from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory

from race.contestants.base import Answers, Backend, Case, Contestant
from race.contestants.registry import KILLED
from race.play import Player
from race.workloads import Workload

KILL_AT = 0.563  # of the workload's time: not at a flush of any contestant


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
    contestant = KILLED[key]
    with TemporaryDirectory() as first, TemporaryDirectory() as second:
        counted, known = _kill_sites(key, workload, case._replace(folder=first))
        all_counted, all_known = _kill_server(contestant, workload, case._replace(folder=second))
    return Loss(contestant.name, workload.name, counted - known, counted, all_counted - all_known, all_counted)


def _kill_sites(key: str, workload: Workload, case: Case) -> tuple[int, int]:
    spawn = get_context("spawn")
    with KILLED[key].backend(case) as backend:
        here, there = spawn.Pipe()
        process = spawn.Process(target=_killed_fleet, args=(key, backend.address, workload, case, there))
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
        recovery = KILLED[key].recovery_fleet
        if recovery is not None:
            recovery(backend.address, case._replace(sites=1)).close()
        return int(message[1]), backend.total()


def _killed_fleet(key: str, address: str, workload: Workload, case: Case, parent: Connection) -> None:
    """Count up to the time of the kill, send how much, and wait."""
    contestant = KILLED[key]
    fleet = contestant.fleet(address, case)
    parent.send(fleet.targets)
    player = Player(fleet, RemoteBackend(parent), workload, contestant.period)
    player.play(KILL_AT * workload.seconds)
    fleet.flush()
    parent.send(("counted", player.judge.total))
    parent.recv()


def _kill_server(contestant: Contestant, workload: Workload, case: Case) -> tuple[int, int]:
    with contestant.backend(case) as backend:
        with (contestant.restart_fleet or contestant.fleet)(backend.address, case) as fleet:
            backend.targets = fleet.targets
            player = Player(fleet, backend, workload, contestant.period)
            player.play(KILL_AT * workload.seconds)
            fleet.flush()
            backend.kill()
            player.play()
            player.tick(workload.seconds + contestant.period)  # the next flush
        return player.judge.total, backend.total()


class RemoteBackend(Backend):
    """The backend as seen from the process of the sites: its timers run in the other process."""

    def __init__(self, parent: Connection) -> None:
        self._parent = parent

    def tick(self, now: float) -> Answers:
        self._parent.send(("tick", now))
        answers: Answers = self._parent.recv()
        return answers

    def total(self) -> int:
        raise NotImplementedError

    def kill(self) -> None:
        raise NotImplementedError
