"""What `countless doctor` looks at: the installation, a coordinator about to start, the way to one that runs."""

import resource
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import NamedTuple

from countless import __version__
from countless.client.api import ApiClient, ServiceError
from countless.client.transport.websocket import Endpoint, WebSocketConnection
from countless.errors import CountlessError
from countless.server.settings import STATE_FILE, Settings
from countless.server.storage.sqlite_store import SqliteStore

_APART = 5.0  # seconds by which two clocks may differ before people are confused


class Finding(NamedTuple):
    """One thing that was looked at; `remedy` says what to do next, if it is not well."""

    what: str
    found: str
    remedy: str = ""

    @property
    def well(self) -> bool:
        """Nothing needs to be done."""
        return not self.remedy


def installation() -> Iterator[Finding]:
    """Versions and extras."""
    python = ".".join(map(str, sys.version_info[:3]))
    old = "install Python 3.11 or newer" if sys.version_info < (3, 11) else ""
    yield Finding("python", python, old)
    yield Finding("countless", __version__)
    for extra in ("server", "nats", "lab"):
        missing = sorted(_missing(extra))
        # Only the server is needed here: the others are for those who want them.
        remedy = f"pip install 'countless[{extra}]'" if missing and extra == "server" else ""
        yield Finding(f"extra {extra}", f"without {', '.join(missing)}" if missing else "complete", remedy)


def _missing(extra: str) -> Iterator[str]:
    try:
        lines = requires("countless") or []
    except PackageNotFoundError:  # run from the sources: whoever does that looks after the rest
        lines = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        if f"extra == '{extra}'" in marker.replace('"', "'") and "[" not in requirement:
            name = requirement.strip().split(" ")[0]
            name = name[: next((i for i, c in enumerate(name) if c in "<>=!~"), len(name))]
            try:
                version(name)
            except PackageNotFoundError:
                yield name


def coordinator(settings: Settings) -> Iterator[Finding]:
    """Whether a coordinator could start with these settings on this machine."""
    yield _try("settings", settings.require_safe, "safe", "follow the message")
    yield _try("state", lambda: _state(settings), settings.state_dir, "make the directory writable for this user")
    yield _port(settings)
    hard, need = resource.getrlimit(resource.RLIMIT_NOFILE)[1], settings.max_connections + 100
    few = f"raise it to {need:,} (LimitNOFILE= in the unit), or lower max_connections" if 0 <= hard < need else ""
    yield Finding("open files", f"at most {hard:,}", few)
    if settings.tls_cert:
        yield _try("tls", lambda: _certificate(settings), settings.tls_cert, "renew or replace the PEM files")


def _try(what: str, look: Callable[[], str | None], found: str, remedy: str) -> Finding:
    try:
        return Finding(what, look() or found)
    except (CountlessError, OSError) as error:
        return Finding(what, str(error), remedy)


def _state(settings: Settings) -> str | None:
    directory = Path(settings.state_dir)
    if (directory / STATE_FILE).exists():
        SqliteStore(directory / STATE_FILE).close()
        return f"{directory}: readable, of this version"
    nearest = next(parent for parent in (directory, *directory.absolute().parents) if parent.exists())
    with tempfile.TemporaryFile(dir=nearest):
        return f"{directory}: will be made"


def _port(settings: Settings) -> Finding:
    with socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            running = ApiClient(f"http://{settings.host}:{settings.port}", timeout=2.0)
            if _succeeds(lambda: running.request("GET", "/livez")):
                return Finding("port", f"{settings.port}: a coordinator is running there")
            return Finding("port", f"{settings.host}:{settings.port}: {error.strerror}", "choose another with --port")
    return Finding("port", f"{settings.host}:{settings.port} is free")


def _certificate(settings: Settings) -> str:
    """A handshake with itself: does the key belong to the certificate, and is it still good?"""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(settings.tls_cert, settings.tls_key)
    client.check_hostname = False
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN  # who signed it is the clients' business
    client.load_verify_locations(settings.tls_cert)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller, callee = client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)
    for side in (caller, callee, caller, callee):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    details = caller.getpeercert() or {}
    until = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(details["notAfter"])), UTC)
    return f"{settings.tls_cert}: good until {until:%Y-%m-%d}"


def connection(url: str, token: str | None) -> Iterator[Finding]:
    """Whether the coordinator at `url` can be reached, and what this token may do there."""
    reader = ApiClient(url, token, timeout=5.0)
    try:
        clock = reader.request("GET", "/livez")["time"]
    except ServiceError as error:
        yield Finding("coordinator", str(error), "start one with: countless serve; or set COUNTLESS_URL")
        return
    yield Finding("coordinator", f"{url} answers")
    yield _try("ready", lambda: reader.request("GET", "/readyz") and None, "yes", "wait: it is learning, or going down")
    apart = abs((datetime.now(UTC) - datetime.fromisoformat(clock)).total_seconds())
    remedy = "set both clocks by NTP: times in logs and on the page do not agree" if apart > _APART else ""
    yield Finding("clock", f"{apart:.1f} s apart from the coordinator's", remedy)
    allowed = [scope for scope, attempt in _SCOPES.items() if _succeeds(partial(attempt, url, token))]
    remedy = "" if allowed else "make a token there with: countless token site; then set COUNTLESS_TOKEN"
    yield Finding("allowed", ", ".join(allowed) or "nothing", remedy)


_SCOPES: dict[str, Callable[[str, str | None], object]] = {
    "to count": lambda url, token: WebSocketConnection(Endpoint.parse(url), token, timeout=5.0).close(),
    "to read": lambda url, token: ApiClient(url, token).request("GET", "/api/v1/counters"),
    "to operate": lambda url, token: ApiClient(url, token).request("GET", "/api/v1/sites"),
}


def _succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (CountlessError, OSError):
        return False
    return True


def everything(settings: Settings, url: str | None, token: str | None) -> Iterator[Finding]:
    """Of a machine that should run a coordinator or, with a `url`, of one that should reach one."""
    yield from installation()
    yield from coordinator(settings) if url is None else connection(url, token)
