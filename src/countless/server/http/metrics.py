"""`/metrics`: for operators only, because message counts are the dice (SPEC section 8)."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from time import monotonic, time

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from countless import __version__
from countless.core.answer import State
from countless.server.http.server_view import ServerView


class HostCollector(Collector):
    """Reads the host when Prometheus asks; nothing is kept twice."""

    def __init__(self, host: ServerView) -> None:
        self._host = host

    def collect(self) -> Iterable[Metric]:
        """Every family, in the order of the documentation."""
        yield from self._answers()
        yield from self._traffic()
        yield from self._sites()
        build = GaugeMetricFamily("countless_build_info", "The version that runs.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build

    def _answers(self) -> Iterator[Metric]:
        total = CounterMetricFamily("countless_count", "The published total; it never falls.", labels=["counter"])
        lower = GaugeMetricFamily("countless_count_lower", "The truth is at least this.", labels=["counter"])
        upper = GaugeMetricFamily("countless_count_upper", "The truth is at most this.", labels=["counter"])
        state = GaugeMetricFamily("countless_answer_state", "1 for the present state.", labels=["counter", "state"])
        rounds = CounterMetricFamily("countless_rounds", "Rounds so far.", labels=["counter"])
        for name, counter in self._host.counters.items():
            answer = counter.published_answer
            total.add_metric([name], answer.estimate)
            lower.add_metric([name], answer.lower)
            upper.add_metric([name], answer.upper)
            rounds.add_metric([name], answer.round)
            for each in State:
                state.add_metric([name, each], each is answer.state)
        yield from (total, lower, upper, state, rounds)

    def _traffic(self) -> Iterator[Metric]:
        messages = CounterMetricFamily("countless_messages", "Messages.", labels=["counter", "direction"])
        size = CounterMetricFamily("countless_message_bytes", "Bytes of all frames.", labels=["direction"])
        dropped = CounterMetricFamily("countless_dropped", "Connections and counters refused.", labels=["reason"])
        overflow = CounterMetricFamily(
            "countless_label_overflow", "Labelled series that were counted in the overflow series.", labels=["counter"]
        )
        for family, number in self._host.overflowed.items():
            overflow.add_metric([family], number)
        for name, counter in self._host.counters.items():
            messages.add_metric([name, "up"], counter.traffic.up)
            messages.add_metric([name, "down"], counter.traffic.down)
        for direction, number in self._host.frame_bytes.items():
            size.add_metric([direction], number)
        for reason, number in self._host.dropped.items():
            dropped.add_metric([reason], number)
        yield from (messages, size, dropped, overflow)

    def _sites(self) -> Iterator[Metric]:
        sites = GaugeMetricFamily("countless_sites", "Sites by state.", labels=["state"])
        heard = GaugeMetricFamily(
            "countless_site_last_report_timestamp_seconds", "When a site was last heard.", labels=["site"]
        )
        states: Tally[str] = Tally({"connected": 0, "away": 0, "silent": 0})
        latest: dict[str, float] = {}
        for life in self._host.sessions:
            states[life.state] += 1
            name = str(life.site_id.site)
            latest[name] = max(latest.get(name, float("-inf")), life.last_seen)
        for state, number in states.items():
            sites.add_metric([state], number)
        offset = time() - monotonic()
        for name, moment in latest.items():
            heard.add_metric([name], moment + offset)
        yield from (sites, heard)


def exposition(host: ServerView, accept: str) -> tuple[bytes, str]:
    """The page, and its type: OpenMetrics for whoever asks for it."""
    registry = CollectorRegistry()
    registry.register(HostCollector(host))
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type
