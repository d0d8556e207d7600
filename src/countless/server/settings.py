"""Settings: flag, else environment (`COUNTLESS_*`), else TOML file, else default. Every limit has its reason here."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from countless.core.parameters import require_alpha, require_probability
from countless.errors import InvalidParameter
from countless.schemes.registry import SCHEMES, require_adversary
from countless.server.storage.base import Config
from countless.wire.nats_url import Broker

STATE_FILE = "countless.sqlite"  # in state_dir
PORT = 2686  # COUN on a telephone
LEAST_ALPHA = 1e-6  # for less, `scheme="exact"` costs no more and is never wrong
LEAST_DELTA = 1e-15  # less than what the memory of the machine itself gets wrong in a life
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATIONS = frozenset({"silent_after", "forget_after", "remember_for", "nats_lease"})


@dataclass(frozen=True, slots=True)
class Settings:
    """All of them, with their defaults."""

    host: str = "127.0.0.1"
    port: int = PORT
    state_dir: str = "countless-state"
    nats: str = ""  # the address of a broker: be one of many coordinators, whose state lives there
    nats_shards: int = 16  # counters move between coordinators in so many parts; agreed on once, by the first of them
    nats_lease: float = 5.0  # seconds until a coordinator that has vanished is replaced; renewed four times in it
    tls_cert: str = ""  # PEM files: with them the port speaks TLS only
    tls_key: str = ""
    tls_client_ca: str = ""  # and with this one, only to clients whose certificate it has signed
    allow_plaintext: bool = False  # beyond loopback, tokens and counts would travel for everybody to read
    silent_after: float = 10.0  # seconds until a site that hung up or owes an answer is silent; five times that if idle
    forget_after: float = 0.0  # seconds of silence after which a site is given up, its last known count kept; 0: never
    remember_for: float = (
        365 * 86400.0
    )  # seconds a life that ended is remembered, lest it be counted twice if it returns
    alpha: float = 0.01  # for counters nobody configured
    delta: float = 0.05
    scheme: str = "auto"
    adversary: str = "adaptive"
    label_cap: int = 2000  # label values come from outside: without a cap they fill the memory
    max_connections: int = 20_000  # memory of each: docs/scale.md
    max_counters: int = 100_000  # about 10 kB each, and 1 kB for each of their sites
    max_counters_per_site: int = 20_000  # so that one site cannot use up what is there for all
    max_sites: int = 50_000  # lives, also of sites that are away: each has a line for each of its counters
    max_messages_per_second: int = 5_000  # of one site: far above what any pace asks for, far below what would hurt

    def __post_init__(self) -> None:
        for name, top in (("port", 65_536), ("label_cap", 1 << 31), ("max_connections", 1 << 31)):
            _require(name, getattr(self, name), 0, top)
        for name in ("max_counters", "max_counters_per_site", "max_sites", "max_messages_per_second"):
            _require(name, getattr(self, name), 1, 1 << 31)
        _require("nats_shards", self.nats_shards, 1, 1025)  # each is a conversation for every client that uses it
        if not 0.1 <= self.nats_lease < 3_600:
            raise InvalidParameter("nats_lease", self.nats_lease, "a duration from 100ms to an hour, such as 5s")
        if self.nats:
            Broker.parse(self.nats, "nats")
        if not 0 < self.silent_after < 86_400:
            raise InvalidParameter("silent_after", self.silent_after, "a duration of less than a day, such as 10s")
        if not self.forget_after >= 0:
            raise InvalidParameter("forget_after", self.forget_after, "a duration such as 30d, or 0 for never")
        if not 86_400 <= self.remember_for < 1e10:
            raise InvalidParameter("remember_for", self.remember_for, "a duration of at least a day, such as 365d")
        require_config(self.defaults)

    @property
    def defaults(self) -> Config:
        """What a counter gets that nobody configured."""
        return Config(self.alpha, self.delta, self.scheme, self.adversary, self.label_cap)

    @property
    def is_loopback(self) -> bool:
        """Whether nobody outside this machine can reach the port."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False

    def require_safe(self) -> None:
        """Refuse to speak plainly to the world by accident."""
        if bool(self.tls_cert) is not bool(self.tls_key) or (self.tls_client_ca and not self.tls_cert):
            raise InvalidParameter("tls_cert", self.tls_cert, "given together with tls_key")
        if not (self.is_loopback or self.allow_plaintext or self.tls_cert):
            raise InvalidParameter(
                "host",
                self.host,
                "a loopback address, because tokens and counts would travel unencrypted (use --tls-cert and --tls-key; "
                "--allow-plaintext says that something else, such as a proxy or a private network, protects them)",
            )


def require_config(config: Config) -> None:
    """Refuse what no coordinator can run with."""
    require_alpha(config.alpha, LEAST_ALPHA)
    require_probability("delta", config.delta, LEAST_DELTA)
    if config.scheme not in SCHEMES:
        raise InvalidParameter("scheme", config.scheme, f"one of: {', '.join(SCHEMES)}")
    require_adversary(config.adversary)
    _require("label_cap", config.label_cap, 0, 1 << 31)


def load_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str] | None = None, file: Path | None = None
) -> Settings:
    """Flags that are not None win over the environment, which wins over the file."""
    environment = os.environ if environment is None else environment
    merged: dict[str, Any] = {}
    if file is not None:
        merged |= _from_file(file)
    for field in fields(Settings):
        text = environment.get(f"COUNTLESS_{field.name.upper()}")
        if text is not None:
            merged[field.name] = text
        if flags.get(field.name) is not None:
            merged[field.name] = flags[field.name]
    return Settings(**{name: _typed(name, value) for name, value in merged.items()})


def _from_file(file: Path) -> dict[str, Any]:
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidParameter("config", str(file), f"a readable TOML file ({error})") from None
    known = {field.name for field in fields(Settings)}
    for name in settings:
        if name not in known:
            raise InvalidParameter("config", name, f"made of: {', '.join(sorted(known))}")
    return settings


_TYPES: dict[str, Any] = {field.name: field.type for field in fields(Settings)}


def _typed(name: str, value: object) -> Any:
    """The value as the type of its field: text from the environment, numbers and text from TOML."""
    kind = _TYPES[name]
    try:
        if name in _DURATIONS:
            return seconds(value)
        if kind is bool:
            return {"1": True, "true": True, "0": False, "false": False}[str(value).lower()]
        if kind is str and isinstance(value, str):
            return value
        if kind in (int, float) and not isinstance(value, bool) and isinstance(value, str | int | float):
            return kind(value)
    except (ValueError, KeyError, OverflowError):
        pass
    wanted = "a duration such as 500ms, 10s or 30d" if name in _DURATIONS else f"of type {kind.__name__}"
    raise InvalidParameter(name, value, wanted)


def seconds(value: object) -> float:
    """`500ms`, `10s`, `5m`, or a number of seconds."""
    text = str(value).strip()
    unit = text.lstrip("0123456789.")
    return float(text.removesuffix(unit)) * _UNITS[unit or "s"]


def _require(name: str, value: object, low: int, top: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < top:
        raise InvalidParameter(name, value, f"an integer from {low} to {top - 1}")
