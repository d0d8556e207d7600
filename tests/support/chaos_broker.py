"""As `chaos`, behind a broker: two coordinators that take over from each other, and a NATS server that is killed, too.

python -m support.chaos_broker --minutes 10 --seed 1
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from time import sleep

from support import nats
from support.chaos import Chaos, JumpingServer, main
from support.service import Server, until


class JumpingCoordinator(JumpingServer, nats.Coordinator):
    def start(self) -> None:
        Server.start(self)  # shards may have no owner for a moment


class BrokerChaos(Chaos):
    def _start(self, directory: Path, seed: int, stack: ExitStack) -> str:
        self._broker = stack.enter_context(nats.node(directory / "broker"))
        self._servers = [
            stack.enter_context(JumpingCoordinator(directory / f"coordinator-{i}", self._broker.url)) for i in range(2)
        ]
        self.server = self._servers[0]
        self._wait_for_owners()
        return self._broker.url

    def _wait_for_owners(self) -> None:
        for server in self._servers:
            until(partial(server.reader.request, "GET", "/api/v1/counters"), f"an owner of every shard at {server.url}")

    @property
    def _choices(self) -> list[Callable[[], None]]:
        faults = [self._kill_coordinator, self._stop_coordinator, self._kill_worker, self._stop_worker]
        faults += [self._kill_worker, self._jump, self._jump_worker, self._kill_broker, self._stop_broker]
        return [*faults, self._stop_in_take_over, self._kill_uwsgi_worker, self._stop_uwsgi_worker]

    def _heal(self) -> None: ...

    def _some_server(self) -> Server:
        return self._servers[self._rng.randbelow(len(self._servers))]

    def _kill_broker(self) -> None:
        self._broker.kill()
        sleep(self._some(3.0))
        self._broker.start()
        until(self._broker.answers, "the broker")

    def _stop_broker(self) -> None:
        self._stop(self._broker.process, 4.0)

    def _stop_in_take_over(self) -> None:
        """For longer than 1.5 leases: the other coordinator expels it in the middle of its take-over."""
        self._kill_coordinator()
        sleep(self._some(1.0))
        process = self._some_server().process
        process.send_signal(SIGSTOP)
        sleep(1.6 + self._some(0.4))
        process.send_signal(SIGCONT)

    def differences(self) -> list[str]:
        self._wait_for_owners()
        return super().differences()


if __name__ == "__main__":
    main(BrokerChaos)
