"""`/metrics` of the agent: what arrived, what was dropped and why, and whether the coordinator is connected."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from countless import __version__
from countless.agent.envoy import EnvoySide
from countless.agent.parts import Agent


class AgentCollector(Collector):
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> Iterable[Metric]:
        intake = self._agent.intake
        yield CounterMetricFamily("countless_agent_lines", "StatsD lines received.", intake.lines)
        yield CounterMetricFamily("countless_agent_adds", "Increments received by HTTP.", self._agent.http_adds)
        dropped = CounterMetricFamily("countless_dropped", "Lines not counted.", labels=["reason"])
        for reason, number in intake.dropped.items():
            dropped.add_metric([reason], number)
        yield dropped
        yield CounterMetricFamily(
            "countless_agent_overflowed", "Lines and adds counted in an overflow series.", intake.overflowed
        )
        yield from self._budgets()
        if self._agent.envoy is not None:
            yield from self._envoy(self._agent.envoy)
        yield from self._sockets()
        yield GaugeMetricFamily("countless_agent_series", "Counters and their labelled series.", intake.series)
        yield GaugeMetricFamily(
            "countless_agent_connected", "1 while the coordinator answers.", self._agent.client.connected
        )
        build = GaugeMetricFamily("countless_build_info", "The version that runs.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build

    def _budgets(self) -> Iterable[Metric]:
        budgets = self._agent.budgets
        decisions = CounterMetricFamily(
            "countless_budget_decisions", "Requests for units of budgets.", labels=["decision"]
        )
        for reason, number in budgets.decisions.items():
            decisions.add_metric([reason], number)
        yield decisions
        yield CounterMetricFamily(
            "countless_budget_starved_seconds", "Seconds that starved requests waited.", budgets.starved_s
        )
        yield GaugeMetricFamily(
            "countless_agent_holds", "Holds that are open, or were settled in the last minute.", len(budgets.holds)
        )
        yield CounterMetricFamily(
            "countless_agent_holds_expired", "Holds not settled in time: spent.", self._agent.client.expired_holds
        )

    def _envoy(self, envoy: EnvoySide) -> Iterable[Metric]:
        answers = CounterMetricFamily("countless_envoy_requests", "Requests of Envoy.", labels=["answer"])
        for answer, number in envoy.decisions.answers.items():
            answers.add_metric([answer], number)
        yield answers
        yield CounterMetricFamily(
            "countless_envoy_unknown",
            "Requests of Envoy with a descriptor that no limit is for.",
            envoy.decisions.unknown,
        )

    def _sockets(self) -> Iterable[Metric]:
        datagrams = CounterMetricFamily("countless_agent_datagrams", "Datagrams read.", labels=["socket"])
        drops = CounterMetricFamily(
            "countless_agent_kernel_drops", "Datagrams the kernel dropped: buffer full.", labels=["socket"]
        )
        buffers = GaugeMetricFamily(
            "countless_agent_receive_buffer_bytes", "Size of the receive buffer.", labels=["socket"]
        )
        for receiver in self._agent.receivers:
            datagrams.add_metric([receiver.where], receiver.datagrams)
            buffers.add_metric([receiver.where], receiver.buffer)
            if receiver.kernel_drops is not None:
                drops.add_metric([receiver.where], receiver.kernel_drops)
        yield from (datagrams, drops, buffers)


def exposition(agent: Agent, accept: str) -> tuple[bytes, str]:
    """The metrics and their content type: OpenMetrics if the request accepts it, else Prometheus text."""
    registry = CollectorRegistry()
    registry.register(AgentCollector(agent))
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type
