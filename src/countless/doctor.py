"""The checks of `countless doctor`: the installation, a coordinator about to start, the way to a running one."""

import os
import re
import resource
import shutil
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import NamedTuple

from countless import __version__
from countless.client.api import ApiClient
from countless.client.transport.endpoint import Endpoint, find_token
from countless.client.transport.websocket import WebSocketConnection
from countless.errors import CountlessError, ServiceError
from countless.probe import probe_local
from countless.server.settings import STATE_FILE, Settings
from countless.server.storage.backup import check, require_not_lost
from countless.server.storage.sqlite_store import SqliteStore
from countless.token_file import OPERATOR_TOKEN_FILE

MIN_OPEN_FILES = 256  # with fewer, a coordinator hardly serves its page and some sites
MIN_FREE_BYTES = 100_000_000
MIN_FREE_FILES = 10  # a first start makes six
MAX_CLOCK_SKEW_S = 5.0  # with more, times in logs and on the page are confusing


class Finding(NamedTuple):
    """The result of one check. `remedy` says what to do next; it is empty if nothing needs to be done.

    With `warns` the coordinator works without the remedy too, up to a point.
    """

    what: str
    found: str
    remedy: str = ""
    warns: bool = False

    @property
    def ok(self) -> bool:
        return self.warns or not self.remedy


def run_checks(settings: Settings | None, url: str | None, token: str | None) -> Iterator[Finding]:
    """Check a machine that should run a coordinator with these settings, and the way to the one at `url`."""
    yield from check_installation()
    if settings is not None:
        yield from check_coordinator(settings)
    if url is not None:
        yield from check_connection(url, token)


def check_installation() -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", python, "install Python 3.11 or newer" if sys.version_info < (3, 11) else "")
    yield Finding("countless", __version__)
    for extra in ("server", "nats", "dp", "lab"):
        missing = sorted(_missing(extra))
        # Only the server extra is needed here; the others are optional.
        remedy = f"pip install 'countless[{extra}]'" if missing and extra == "server" else ""
        yield Finding(f"extra {extra}", f"without {', '.join(missing)}" if missing else "complete", remedy)


def _missing(extra: str) -> Iterator[str]:
    """Distributions of this extra that are not installed."""
    try:
        requirements = requires("countless") or []
    except PackageNotFoundError:  # run from a source tree that was never installed
        requirements = []
    for line in requirements:
        requirement, _, marker = line.partition(";")
        if re.search(f"extra == ['\"]{extra}['\"]", marker) and "[" not in requirement:
            name = re.split(r"[\s<>=!~]", requirement, maxsplit=1)[0]
            try:
                version(name)
            except PackageNotFoundError:
                yield name


_STATE_REMEDY = "make the directory writable for this user; a damaged file: restore a copy with countless restore FILE"


def check_coordinator(settings: Settings) -> Iterator[Finding]:
    """Could a coordinator start with these settings on this machine?"""
    yield _attempt("settings", settings.require_safe, "safe", "follow the message")
    yield _attempt("state", lambda: _state(settings), settings.state_dir, _STATE_REMEDY)
    if (state := Path(settings.state_dir) / STATE_FILE).exists():
        remedy = "stop the coordinator, and restore a copy: countless restore FILE"
        yield _attempt("state file", lambda: check(state), f"{state}: every page can be read", remedy)
    yield _disk(settings)
    yield _port(settings)
    hard, need = resource.getrlimit(resource.RLIMIT_NOFILE)[1], settings.max_connections + 100
    few = f"for all max_connections raise it to {need:,} (LimitNOFILE= in the unit), or lower max_connections"
    remedy = few if 0 <= hard < need else ""
    yield Finding("open files", f"at most {hard:,}", remedy, warns=hard >= MIN_OPEN_FILES)
    yield _operator(settings)
    if settings.tls_cert:
        remedy = f"renew or replace the PEM files {settings.tls_cert} and {settings.tls_key}"
        yield _attempt("tls", lambda: _certificate(settings), settings.tls_cert, remedy)


def _attempt(what: str, check: Callable[[], str | None], found: str, remedy: str) -> Finding:
    """`found` is reported if the check passes and returns no text of its own."""
    try:
        return Finding(what, check() or found)
    except (CountlessError, OSError) as error:
        return Finding(what, str(error), remedy)


def _state(settings: Settings) -> str | None:
    directory = Path(settings.state_dir)
    require_not_lost(directory / STATE_FILE)
    if (directory / STATE_FILE).exists():
        SqliteStore(directory / STATE_FILE).close()
        return f"{directory}: of this version"
    with tempfile.TemporaryFile(dir=_existing(directory)):
        return f"{directory}: will be created, unless --state-dir names another"


def _existing(directory: Path) -> Path:
    return next(parent for parent in (directory, *directory.absolute().parents) if parent.exists())


def _disk(settings: Settings) -> Finding:
    directory = _existing(Path(settings.state_dir))
    status = os.statvfs(directory)
    if status.f_flag & os.ST_RDONLY:
        return Finding("disk", f"the file system of {directory} is read-only", "look for errors in the system's log")
    if status.f_files and status.f_favail < MIN_FREE_FILES:
        return Finding("disk", f"{status.f_favail} more files can be made for {directory} (df -i)", "remove some files")
    free = shutil.disk_usage(directory).free
    remedy = (
        "free some space: on a full disk nothing is saved, and answers are degraded" if free < MIN_FREE_BYTES else ""
    )
    return Finding(
        "disk", f"{free / 1e6:,.0f} MB free for {settings.state_dir}", remedy, warns=free >= MIN_FREE_BYTES / 100
    )


def _operator(settings: Settings) -> Finding:
    """The people and programs that may operate it."""
    file = Path(settings.state_dir) / OPERATOR_TOKEN_FILE
    if settings.open:
        return Finding("operator", "every program on this machine, without a token (open)")
    if not file.exists():
        return Finding("operator", f"{file}: made by the first start, unless there is a token of scope operator")
    remedy = f"chmod 600 {file}; then: countless token rotate" if file.stat().st_mode & 0o077 else ""
    return Finding("operator", f"{file} has a token{', and others can read it' if remedy else ''}", remedy)


def _port(settings: Settings) -> Finding:
    with socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((settings.host, settings.port))
        except OSError as error:
            if _succeeds(lambda: probe_local(settings, "/livez")):
                return Finding("port", f"{settings.port}: a coordinator is running there")
            return Finding("port", f"{settings.host}:{settings.port}: {error.strerror}", "choose another with --port")
    return Finding("port", f"{settings.host}:{settings.port} is free")


def _certificate(settings: Settings) -> str:
    """Complete a handshake in memory: it fails if the key does not fit the certificate or the certificate expired."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(settings.tls_cert, settings.tls_key)
    client.check_hostname = False
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN  # the clients decide which authority they trust
    client.load_verify_locations(settings.tls_cert)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller, callee = client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)
    for side in (caller, callee, caller, callee):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    details = caller.getpeercert() or {}
    until = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(details["notAfter"])), UTC)
    return f"{settings.tls_cert}: valid until {until:%Y-%m-%d}"


def check_connection(url: str, token: str | None) -> Iterator[Finding]:
    """Does the coordinator at `url` respond, and what does it allow with this token?"""
    reader = ApiClient(url, token, timeout=5.0)
    try:
        clock = reader.request("GET", "/livez")["time"]
    except ServiceError as error:
        start = "start one with: countless serve; or set COUNTLESS_URL"
        refused = isinstance(error.__cause__, ssl.SSLCertVerificationError)
        yield Finding("coordinator", str(error), "follow the message" if refused else start)
        return
    yield Finding("coordinator", f"{url} responds")
    remedy = "learning, going down: wait. Not saved: free the disk of its state directory, and look at its log"
    yield _attempt("ready", lambda: reader.request("GET", "/readyz") and None, "yes", remedy)
    skew = abs((datetime.now(UTC) - datetime.fromisoformat(clock)).total_seconds())
    remedy = "set both clocks by NTP: times in logs and on the page do not agree" if skew > MAX_CLOCK_SKEW_S else ""
    yield Finding("clock", f"{skew:.1f} s from the coordinator's", remedy)
    allowed = [scope for scope, attempt in _SCOPES.items() if _succeeds(partial(attempt, url, token))]
    remedy = "" if allowed else "create a token there with: countless token create site; then set COUNTLESS_TOKEN_FILE"
    yield Finding("allowed", ", ".join(allowed) or "nothing", remedy)


def _connect(endpoint: Endpoint, token: str | None) -> None:
    WebSocketConnection(endpoint, *find_token(endpoint, token), timeout=5.0).close()


_SCOPES: dict[str, Callable[[str, str | None], object]] = {
    "to count": lambda url, token: _connect(Endpoint.parse(url), token),
    "to read": lambda url, token: ApiClient(url, token).request("GET", "/api/v1/counters"),
    "to operate": lambda url, token: ApiClient(url, token).request("GET", "/api/v1/sites"),
}


def _succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (CountlessError, OSError, HTTPException):
        return False
    return True
