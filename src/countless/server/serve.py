"""Run the application: one process, one port, until SIGTERM."""

import asyncio
import fcntl
import gc
import logging
import os
import resource
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from countless.errors import InvalidParameter
from countless.http_protocol import http_protocol
from countless.server import logs
from countless.server.app import build_app, require_nats
from countless.server.audit import AuditLog
from countless.server.http.routes import MAX_BODY_BYTES
from countless.server.http.sockets.fast_websocket import FastWebSocketProtocol
from countless.server.logs import LOG_FORMATS, LOG_LEVELS
from countless.server.settings import STATE_FILE, Settings
from countless.server.storage.backup import require_not_lost
from countless.server.storage.base import StoreError
from countless.server.storage.sqlite_store import SqliteStore
from countless.server.tokens import FIRST_LABEL, first_operator_token
from countless.systemd import keep_watchdog_quiet, notify
from countless.token_file import ensure_private
from countless.unread import limit_unread
from countless.wire.frames import MAX_FRAME_BYTES
from countless.wire.nats_url import netloc

log = logging.getLogger("countless.serve")

# Allocations between two runs of the garbage collector, for each generation. Nothing else runs meanwhile, and 10,000
# connected sites are millions of objects: with Python's defaults it would stop the process for more than a second,
# every few seconds.
GC_THRESHOLDS = (50_000, 5, 20)
MAX_OPEN_FILES = 1 << 18  # far more than max_connections needs
STOP_DEADLINE_S = 14.0  # from SIGTERM on; 10 s with a full disk. Units and manifests allow 15 s, and then kill
TLS_TIMEOUT_S = 10.0  # for a handshake, and for the end of a connection; asyncio allows 60 and 30 s
SWITCH_INTERVAL_S = 0.001  # the event loop waits at most so long for the commit and planner threads


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, settings: Settings | None = None) -> None:
        super().__init__(config)
        self._settings = settings  # None: it does not run in the main thread, which gets the signals
        self._watchdog: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As in uvicorn; then print the address, because with port 0 the system chooses it, and tell systemd."""
        loop = asyncio.get_running_loop()
        if self.config.is_ssl:  # uvicorn has no setting for this
            limits = {"ssl_handshake_timeout": TLS_TIMEOUT_S, "ssl_shutdown_timeout": TLS_TIMEOUT_S}
            loop.create_server = partial(loop.create_server, **limits)  # type: ignore[method-assign]
        await super().startup(sockets)
        if self.started:
            address = netloc(*self.servers[0].sockets[0].getsockname()[:2])
            url = f"{'https' if self.config.is_ssl else 'http'}://{address}"
            if self._settings is not None:
                loop.add_signal_handler(signal.SIGHUP, reload_certificate, self.config.ssl, self._settings)
            self._watchdog = loop.create_task(keep_watchdog_quiet())
            print(f"countless: listening on {url}", flush=True)
            notify(f"READY=1\nSTATUS=listening on {url}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """First end the event streams: uvicorn would wait for them."""
        notify("STOPPING=1")
        if self._settings is not None:
            _end_after(STOP_DEADLINE_S)
        self.config.app.state.server.drain()  # type: ignore[union-attr]
        await super().shutdown(sockets)


def _end_after(seconds: float) -> None:
    """End the process then, if it has not ended: a save that hangs cannot be interrupted. That is as safe as kill -9:
    what was not saved was not acknowledged.
    """

    def end() -> None:
        log.critical("stop timed out, process ended while the disk hangs: seconds=%.0f", seconds)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def serve(settings: Settings, log_level: str = "warning", log_format: str = "plain") -> None:
    """Serve until SIGTERM. Raises before it listens if the settings or the state cannot be used."""
    settings.require_safe()
    if log_level not in LOG_LEVELS:
        raise InvalidParameter("log_level", log_level, f"one of: {', '.join(LOG_LEVELS)}")
    if log_format not in LOG_FORMATS:
        raise InvalidParameter("log_format", log_format, f"one of: {', '.join(LOG_FORMATS)}")
    _require_certificates(settings)
    with _usable_state(settings), _listener(settings) as listener:
        logs.configure(log_level, log_format)
        _say_who_may_operate(settings)
        _run(settings, listener, log_level)


def _require_certificates(settings: Settings) -> None:
    """Before anything is created in the state directory."""
    if not settings.tls_cert:
        return
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
        if settings.tls_client_ca:
            context.load_verify_locations(settings.tls_client_ca)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (settings.tls_cert, settings.tls_key, settings.tls_client_ca)))
        raise InvalidParameter("tls_cert", files, f"PEM files that fit together ({error})") from None


def reload_certificate(context: ssl.SSLContext | None, settings: Settings) -> bool:
    """Read renewed certificates, for new connections. True if the files were read. If they can't be used, the old
    certificate stays, and that is logged.

    Authorities of clients (`tls_client_ca`) are added, and none is removed: that needs a restart.
    """
    if context is None:
        log.warning("SIGHUP ignored, no certificate to read again: tls_cert is not set")
        return False
    try:
        # First in another context: a key that does not fit would leave this one with half of the new files.
        for each in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
            each.load_cert_chain(settings.tls_cert, settings.tls_key)
            if settings.tls_client_ca:
                each.load_verify_locations(settings.tls_client_ca)
    except OSError as error:  # ssl.SSLError is one
        log.warning("certificate not reloaded, old one stays: file=%s error=%s", settings.tls_cert, error)
        return False
    log.warning("certificate reloaded: file=%s", settings.tls_cert)
    return True


@contextmanager
def _usable_state(settings: Settings) -> Iterator[None]:
    """Check the state directory or the broker, and lock the directory."""
    if settings.nats:
        require_nats()
        from countless.server.cluster.broker import require_broker

        require_broker(settings.nats)
        yield
    else:
        directory = Path(settings.state_dir)
        require_not_lost(directory / STATE_FILE)
        SqliteStore(directory / STATE_FILE).close()
        with exclusive(directory):
            yield


def _say_who_may_operate(settings: Settings) -> None:
    """Make a token for the operator if there is none: without a token nothing is allowed."""
    if settings.open:
        log.warning("tokens not required, every program on this machine is operator: open=true")
        return
    directory = Path(settings.state_dir)
    if settings.nats:
        from countless.server.cluster.tokens import first_token

        path = first_token(settings.nats, directory)
    else:
        with closing(SqliteStore(directory / STATE_FILE)) as store:
            path = first_operator_token(store, directory)
    if path is not None:
        audit = AuditLog(None if settings.nats else directory)
        audit.write("token made", f"process {os.getpid()}", scope="operator", label=FIRST_LABEL)
        log.warning("operator token created, commands on this machine find it: file=%s", path.absolute())


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Two coordinators on one state directory would overwrite each other's counts."""
    try:
        ensure_private(directory / "countless.lock")
        file = (directory / "countless.lock").open("w")
    except OSError as error:
        raise StoreError(f"{directory} cannot be used: {error}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreError(f"{directory} is in use by another coordinator, or a countless restore") from None
        yield


def _listener(settings: Settings) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise InvalidParameter("port", where, f"an address that is free to listen on ({error})") from None
    limit_unread(listener)
    return listener


def _run(settings: Settings, listener: socket.socket, log_level: str) -> None:
    raise_file_limit()
    os.umask(0o077)  # counts of single sites are for the operator
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    app = build_app(settings)
    config = uvicorn_config(app, settings, log_level)
    # uvicorn raises the signal that stopped it again when it ends. Ignore it: a requested stop is not a failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1 if app.state.server.failing else 0))
    server = Server(config, settings)
    app.state.open_connections = lambda: len(server.server_state.connections)
    with _without_traceback(app):
        server.run([listener])
    if not server.started:
        sys.exit(1)


@contextmanager
def _without_traceback(app: Starlette) -> Iterator[None]:
    """Raise a problem that the operator can solve, which uvicorn would log with a traceback."""
    log = logging.getLogger("uvicorn.error")

    def has_no_remedy(record: logging.LogRecord) -> bool:
        return app.state.problem is None

    log.addFilter(has_no_remedy)
    try:
        yield
    except SystemExit:
        if app.state.problem is not None:
            raise app.state.problem from None
        raise
    finally:
        log.removeFilter(has_no_remedy)


def raise_file_limit() -> None:
    """Each connection is an open file, and many systems allow a process 1,024 of them unless it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _without_tokens(record: logging.LogRecord) -> bool:
    """At level debug the WebSocket library logs every header of a request."""
    return "authorization" not in record.getMessage().lower()


def uvicorn_config(app: Starlette, settings: Settings, log_level: str) -> uvicorn.Config:
    logging.getLogger("uvicorn.error").addFilter(_without_tokens)
    config = uvicorn.Config(
        app,
        loop="auto",  # uvloop if it is installed
        http=http_protocol(MAX_BODY_BYTES),
        ws=FastWebSocketProtocol,
        ws_max_size=MAX_FRAME_BYTES,
        ws_ping_interval=None,  # sites send heartbeats, which the site server sees
        ws_per_message_deflate=False,
        ssl_certfile=settings.tls_cert or None,
        ssl_keyfile=settings.tls_key or None,
        ssl_ca_certs=settings.tls_client_ca or None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if settings.tls_client_ca else ssl.CERT_NONE,
        lifespan="on",
        log_config=None,  # see `logs`
        log_level=log_level,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # see `ForwardedAddress`
        timeout_graceful_shutdown=5,
    )
    config.load()
    return config
