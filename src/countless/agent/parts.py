"""The parts of a running agent, which its HTTP side and its metrics read."""

from countless.agent.budgets import AgentBudgets
from countless.agent.envoy import EnvoySide
from countless.agent.intake import Intake
from countless.agent.sockets import Receiver
from countless.client.client import Client


class Agent:
    def __init__(
        self,
        client: Client,
        intake: Intake,
        receivers: list[Receiver],
        hosts: frozenset[str] | None = frozenset(),
        envoy: EnvoySide | None = None,
    ) -> None:
        self.client = client
        self.intake = intake
        self.receivers = receivers
        self.hosts = hosts  # names by which it may be called: see `CheckedHost`
        self.envoy = envoy
        self.http_adds = 0
        self.budgets = AgentBudgets(client)
