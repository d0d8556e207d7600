"""All counters by name, and the limits on how many there may be. Every change is marked for the next commit."""

from collections import Counter as Tally

from countless.errors import InvalidParameter, UnknownName
from countless.server.sessions.counter import Counter
from countless.server.sessions.labels import family_of
from countless.server.settings import Settings, require_config
from countless.server.storage.base import Config
from countless.server.storage.commit import CommitPipeline
from countless.wire.names import overflow_name, validate_name


class CounterRegistry:
    def __init__(self, counters: dict[str, Counter], settings: Settings, pipeline: CommitPipeline) -> None:
        self.counters = counters
        self.overflowed: Tally[str] = Tally()  # by counter: series that were counted in its overflow series
        self._settings = settings
        self._pipeline = pipeline
        self._series: Tally[str] = Tally()  # by counter: its labelled series

    def get(self, name: str) -> Counter:
        try:
            return self.counters[name]
        except KeyError:
            raise UnknownName("counter", name, self.counters) from None

    def add(self, counter: Counter) -> None:
        """A counter that was loaded from the store."""
        self.counters[counter.name] = counter
        self._series.update(filter(None, [family_of(counter.name)]))

    def create(self, name: str, config: Config) -> Counter:
        validate_name(name)
        require_config(config)
        if name in self.counters:
            raise InvalidParameter("counter", name, "a name that is not taken")
        if len(self.counters) >= self._settings.max_counters:
            raise InvalidParameter("counter", name, f"one of at most {self._settings.max_counters} (max_counters)")
        if self._is_beyond_cap(name):
            cap = self._config_of_family(name).label_cap
            raise InvalidParameter("counter", name, f"one of at most {cap} (label_cap)")
        counter = Counter(name, config)
        self.add(counter)
        self._pipeline.mark_config(name, config)
        return counter

    def configure(self, name: str, config: Config) -> Counter:
        """Replace the counter by one with another config; the same object if the config is the same. Alpha may only
        grow, because the published total cannot be taken back.
        """
        before = self.get(name)
        require_config(config)
        if config.alpha < before.config.alpha:
            raise InvalidParameter("alpha", config.alpha, f"at least {before.config.alpha}, which it has had so far")
        if config != before.config:
            self.counters[name] = before.reconfigured(config)
            self._pipeline.mark_config(name, config)
        return self.counters[name]

    def remove(self, name: str) -> None:
        counter = self.counters.pop(name)
        self._series.subtract(filter(None, [family_of(name)]))
        self._pipeline.mark_deleted(name)
        counter.notify()

    def counter_for(self, name: str) -> Counter:
        """Where a site's events of this name are counted: the counter of that name, created if there is none, or for a
        series beyond the cap the overflow series.
        """
        if name in self.counters:
            return self.counters[name]
        config = self._config_of_family(name)
        if not self._is_beyond_cap(name):
            return self.create(name, config)
        family = str(family_of(name))
        overflow = self.counters.get(overflow_name(family)) or self.create(overflow_name(family), config)
        if overflow.coordinator.sites >= self._settings.max_sites:
            raise InvalidParameter("counter", name, f"one of at most {self._settings.max_sites} beyond the label cap")
        self.overflowed[family] += 1
        return overflow

    def _config_of_family(self, name: str) -> Config:
        """Series have the config of the counter they belong to, or else the default."""
        counter = self.counters.get(family_of(name) or "")
        return counter.config if counter else self._settings.defaults

    def _is_beyond_cap(self, name: str) -> bool:
        family = family_of(name)
        return family is not None and self._series[family] >= self._config_of_family(name).label_cap
