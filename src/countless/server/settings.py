"""Settings: flag, else environment (`COUNTLESS_*`), else TOML file, else default. Every limit has its reason here."""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from countless.core.parameters import require_alpha, require_probability, seconds
from countless.core.periods.window import WindowRule
from countless.errors import InvalidParameter, UnknownName
from countless.schemes.registry import SCHEMES, require_adversary
from countless.wire.nats_url import Broker

STATE_FILE = "countless.sqlite"  # in state_dir
PORT = 2686  # COUN on a telephone keypad
MIN_ALPHA = 1e-6  # for less, `scheme="exact"` costs no more and is never wrong
MIN_DELTA = 1e-15  # memory errors of a machine are more likely
MAX_COUNT = (1 << 31) - 1
RECONNECT_S = 60.0  # the longest pause of a client between attempts, and the time-outs of one attempt
_PREFIX = "COUNTLESS_"
# Of clients and logs, and what Kubernetes sets in every pod beside a service named countless.
_OTHER_VARIABLES = re.compile(
    "URL|TOKEN|TOKEN_FILE|SITE|CLIENT_STATE_DIR|NATS_CREDS|CA|CERT|DISABLE|LOG_LEVEL|LOG_FORMAT|PORT_.*|SERVICE_.*"
)
SHARES = frozenset({"alpha", "delta", "max_share"})
DURATIONS = frozenset({"silent_after", "forget_after", "remember_for", "restore_wait", "nats_lease"})

Port = Annotated[int, Meta(ge=0, le=65_535)]
Shards = Annotated[int, Meta(ge=1, le=1024)]  # each is a stream of its own for every client that uses it
Limit = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
LimitOrZero = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Share = Annotated[float, Meta(gt=0, le=1)]
Lease = Annotated[float, Meta(ge=0.1, lt=3_600)]
TimeOut = Annotated[float, Meta(gt=0, lt=86_400)]
Seconds = Annotated[float, Meta(ge=0)]
Retention = Annotated[float, Meta(ge=86_400, lt=1e10)]


@dataclass(frozen=True, slots=True)
class Config:
    """The choices of an operator for a counter."""

    alpha: float = 0.01
    delta: float = 0.05
    scheme: str = "auto"
    adversary: str = "adaptive"
    label_cap: int = 2000
    windows: WindowRule | None = None

    def changed(self, given: Mapping[str, Any], windows: WindowRule | None) -> "Config":
        return replace(self, **given, windows=windows)

    @property
    def windows_kept(self) -> int:
        return 0 if self.windows is None else self.windows.windows_kept


@dataclass(frozen=True, slots=True)
class Settings:
    host: str = "127.0.0.1"  # the address to listen on
    port: Port = PORT  # 0: the system chooses, and the coordinator prints it
    state_dir: str = "countless-state"  # directory of the state file; one coordinator at a time
    nats: str = ""  # address of a broker: run as one of several coordinators, with the state at the broker
    nats_shards: Shards = 16  # parts in which counters move between coordinators; the first coordinator decides
    nats_lease: Lease = 5.0  # length of a lease; a coordinator that has not renewed its own for 1.5 of them is replaced
    tls_cert: str = ""  # PEM file; with it and `tls_key` the port accepts TLS only
    tls_key: str = ""  # PEM file of the certificate's private key
    tls_client_ca: str = ""  # PEM file; with it, clients need a certificate that this authority signed
    allow_plaintext: bool = False  # without TLS, tokens and counts can be read on the network; loopback is exempt
    open: bool = False  # every program on this machine is operator, without a token; on a loopback address only
    silent_after: TimeOut = 10.0  # time-out of a site that is disconnected or owes a reply; five times this if idle
    forget_after: Seconds = 7 * 86_400.0  # a site silent for this long is retired; its counts stay; 0: never
    remember_for: Retention = 365 * 86_400.0  # how long tombstones are kept, so that their counts are not counted again
    after_restore: bool = False  # state_dir is a restored backup: budgets wait for all sites; for one start only
    restore_wait: Seconds = 0.0  # how long budgets wait; 0: a minute and 12 times silent_after, which is the least
    alpha: float = 0.01  # largest relative error
    delta: float = 0.05  # largest probability that any answer is ever wrong
    scheme: str = "auto"  # the algorithm; `auto` chooses
    adversary: str = "adaptive"  # what the counted traffic may react to
    label_cap: LimitOrZero = 2000  # labelled series of a counter: clients choose the values and could fill the memory
    max_connections: LimitOrZero = 20_000  # each takes 31 kB of memory
    max_counters: Limit = 100_000  # about 10 kB each, and 0.4 kB for each of their sites
    max_counters_per_site: Limit = 20_000  # so that one site cannot use up max_counters
    max_memberships: Limit = 20_000_000  # sites times their counters, families, windows and budgets; about 0.4 kB each
    max_sites: Limit = 50_000  # incarnations, connected or not: each has a row for each of its counters
    max_watches: LimitOrZero = 2_000  # streams of answers that are open at once
    max_tombstone_mb: Limit = 10_000  # disk for processes that were retired or have left; about 200 bytes each
    max_label_mb: Limit = 8_000  # memory for labels of families; about 300 bytes for each site and label
    max_partial_mb: Limit = 1_000  # memory for messages of sites that are incomplete or wait to be read
    max_share: Share = 0.5  # share of each limit above (except max_counters_per_site) that one site token may use
    max_messages_per_second: Limit = 5_000  # of one site: more than a trigger causes, less than a coordinator takes in

    def __post_init__(self) -> None:
        for field in fields(self):
            _convert(field.name, getattr(self, field.name), strict=True)
        if not self.state_dir:  # else the state would be in the directory that the command happens to run in
            raise InvalidParameter("state_dir", self.state_dir, "the path of a directory")
        if self.nats:
            Broker.parse(self.nats, "nats")
        require_config(self.defaults)
        if 0 < self.restore_wait < self.least_restore_wait:
            least = f"at least {self.least_restore_wait:g}s (a minute and 12 times silent_after), or 0 for this"
            raise InvalidParameter("restore_wait", f"{self.restore_wait:g}s", least)

    @property
    def defaults(self) -> Config:
        """The configuration of a counter that has none of its own."""
        return Config(self.alpha, self.delta, self.scheme, self.adversary, self.label_cap)

    @property
    def wait_after_restore(self) -> float | None:
        """The seconds that budgets wait for sites that a restored copy of the state does not know, or None."""
        return (self.restore_wait or self.least_restore_wait) if self.after_restore else None

    @property
    def least_restore_wait(self) -> float:
        """The seconds after which a client that runs has connected again.

        One that is cut off without a sign finds that after four heartbeats, which are 12 times `silent_after`; then it
        pauses for at most 5 s, and needs at most 30 s for a connection and the hello.
        """
        return RECONNECT_S + 12 * self.silent_after

    @property
    def is_loopback(self) -> bool:
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False

    def require_safe(self) -> None:
        """Raise if tokens and counts would cross a network unencrypted and `allow_plaintext` is not set."""
        if bool(self.tls_cert) is not bool(self.tls_key) or (self.tls_client_ca and not self.tls_cert):
            message = "tls_cert and tls_key need each other, and tls_client_ca needs both"
            raise InvalidParameter("tls_cert", self.tls_cert, message=message)
        if self.open and not self.is_loopback:
            raise InvalidParameter("host", self.host, "a loopback address with --open, which lets programs in unasked")
        if not (self.is_loopback or self.allow_plaintext or self.tls_cert):
            raise InvalidParameter(
                "host",
                self.host,
                "a loopback address, because tokens and counts would travel unencrypted (use --tls-cert and --tls-key; "
                "--allow-plaintext says that something else, such as a proxy or a private network, protects them)",
            )


def require_config(config: Config) -> None:
    """Raise InvalidParameter for a configuration that no counter can have."""
    require_alpha(config.alpha, MIN_ALPHA)
    require_probability("delta", config.delta, MIN_DELTA)
    if config.scheme not in SCHEMES:
        raise UnknownName("scheme", config.scheme, SCHEMES)
    require_adversary(config.adversary)
    _convert("label_cap", config.label_cap, strict=True)


def load_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str] | None = None, file: Path | None = None
) -> Settings:
    """A flag that is not None overrides the environment, which overrides the file."""
    environment = os.environ if environment is None else environment
    _require_no_typos(environment)
    merged: dict[str, Any] = {}
    if file is not None:
        merged |= _from_file(file)
    for field in fields(Settings):
        text = environment.get(f"{_PREFIX}{field.name.upper()}")
        # Kubernetes sets COUNTLESS_PORT=tcp://... in every pod beside a service named countless.
        if text is not None and not (field.name == "port" and text.startswith("tcp://")):
            merged[field.name] = text
        if flags.get(field.name) is not None:
            merged[field.name] = flags[field.name]
    return Settings(**{name: _convert(name, value, strict=False) for name, value in merged.items()})


def _require_no_typos(environment: Mapping[str, str]) -> None:
    """Raise InvalidParameter for a variable that is nearly one of a setting: the default would stand without a word."""
    settings = {field.name.upper() for field in fields(Settings)}
    for name in environment:
        short = name.removeprefix(_PREFIX)
        if short != name and short not in settings and not _OTHER_VARIABLES.fullmatch(short):
            meant = get_close_matches(short, settings, 1, 0.85)
            if meant:
                message = f"environment variable {name} is no setting: did you mean {_PREFIX}{meant[0]}?"
                raise InvalidParameter(name, environment[name], message=message)


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


_TYPES: dict[str, Any] = get_type_hints(Settings, include_extras=True)


_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}
_RANGES = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def _allowed(kind: Any, unit: str = "") -> str:
    """
    >>> _allowed(Port), _allowed(Lease, " of seconds"), _allowed(bool)
    ('an integer, at least 0 and at most 65,535', 'a number of seconds, at least 0.1 and below 3,600', 'true or false')
    """
    metas = getattr(kind, "__metadata__", ())
    limits = [(words, getattr(meta, name)) for meta in metas for name, words in _RANGES.items()]
    within = " and ".join(f"{words} {limit:,}" for words, limit in limits if limit is not None)
    return _WORDS[getattr(kind, "__origin__", kind)] + unit + (f", {within}" if within else "")


def _convert(name: str, value: object, strict: bool) -> Any:
    """The value as the type of its field and within its range; text is converted unless `strict`."""
    is_duration = name in DURATIONS
    try:
        if name in SHARES and isinstance(value, str) and value.endswith("%"):
            value = float(f"{value[:-1]}e-2")  # 0.7 / 100 is not 0.007
        return msgspec.convert(seconds(value) if is_duration else value, _TYPES[name], strict=strict)
    except msgspec.ValidationError:
        raise InvalidParameter(name, value, _allowed(_TYPES[name], " of seconds" if is_duration else "")) from None
    except (ValueError, KeyError):
        if name in SHARES:
            raise InvalidParameter(name, value, "a share such as 1% or 0.01") from None
        raise InvalidParameter(name, value, "a duration such as 500ms, 10s or 30d") from None
