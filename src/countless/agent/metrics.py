"""`/metrics` of the agent: what came in, what was dropped and why, by whom, and whether the coordinator hears us."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from countless import __version__

if TYPE_CHECKING:
    from countless.agent.app import Agent


class AgentCollector(Collector):
    """Reads the agent when Prometheus asks; nothing is kept twice."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent

    def collect(self) -> Iterable[Metric]:
        """Every family, in the order of the documentation."""
        intake = self._agent.intake
        yield CounterMetricFamily("countless_agent_lines", "StatsD lines received.", intake.lines)
        yield CounterMetricFamily("countless_agent_adds", "Increments received by HTTP.", self._agent.adds)
        dropped = CounterMetricFamily("countless_dropped", "Lines not counted.", labels=["reason"])
        for reason, number in intake.dropped.items():
            dropped.add_metric([reason], number)
        yield dropped
        yield CounterMetricFamily(
            "countless_agent_overflowed", "Counted in an overflow series, for want of room.", intake.overflowed
        )
        yield from self._sockets()
        yield GaugeMetricFamily("countless_agent_series", "Counters and their labelled series.", intake.series)
        yield GaugeMetricFamily(
            "countless_agent_connected", "1 while the coordinator answers.", self._agent.client.connected
        )
        build = GaugeMetricFamily("countless_build_info", "The version that runs.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build

    def _sockets(self) -> Iterable[Metric]:
        datagrams = CounterMetricFamily("countless_agent_datagrams", "Datagrams read.", labels=["socket"])
        drops = CounterMetricFamily(
            "countless_agent_kernel_drops", "Datagrams the kernel had no room for.", labels=["socket"]
        )
        buffers = GaugeMetricFamily(
            "countless_agent_receive_buffer_bytes", "What the kernel may keep for us.", labels=["socket"]
        )
        for receiver in self._agent.receivers:
            datagrams.add_metric([receiver.where], receiver.datagrams)
            buffers.add_metric([receiver.where], receiver.buffer)
            if receiver.kernel_drops is not None:
                drops.add_metric([receiver.where], receiver.kernel_drops)
        yield from (datagrams, drops, buffers)


def exposition(agent: "Agent", accept: str) -> tuple[bytes, str]:
    """The page, and its type: OpenMetrics for whoever asks for it."""
    registry = CollectorRegistry()
    registry.register(AgentCollector(agent))
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type
