"""Run the application: one process, one port, until SIGTERM."""

import signal
import ssl
import sys
from pathlib import Path

import uvicorn

from countless.service.app import STATE_FILE, build_app
from countless.service.settings import Settings
from countless.service.store import Store
from countless.service.wire import Wire
from countless.transports.frames import MOST_BYTES


class Server(uvicorn.Server):
    """Says where it listens: with port 0 the system chooses, and a test or a script wants to know."""

    async def startup(self, *arguments: object, **options: object) -> None:
        """As uvicorn does, and one line on standard output."""
        await super().startup(*arguments, **options)  # type: ignore[arg-type]
        if self.started:
            address = self.servers[0].sockets[0].getsockname()
            host = f"[{address[0]}]" if ":" in address[0] else address[0]
            scheme = "https" if self.config.is_ssl else "http"
            print(f"countless: listening on {scheme}://{host}:{address[1]}", flush=True)

    async def shutdown(self, *arguments: object, **options: object) -> None:
        """First let go of whoever watches, or uvicorn would wait for them."""
        self.config.app.state.host.drain()  # type: ignore[union-attr]
        await super().shutdown(*arguments, **options)  # type: ignore[arg-type]


def serve(settings: Settings, log_level: str = "warning") -> None:
    """Until the process is told to stop. Raises before it listens if the settings or the state are no good."""
    settings.require_safe()
    Store(Path(settings.state_dir) / STATE_FILE).close()
    app = build_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="auto",  # uvloop where it exists
        ws=Wire,
        ws_max_size=MOST_BYTES,
        ws_ping_interval=None,  # sites give signs of life that the host sees
        ws_per_message_deflate=False,
        ssl_certfile=settings.tls_cert or None,
        ssl_keyfile=settings.tls_key or None,
        ssl_ca_certs=settings.tls_client_ca or None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if settings.tls_client_ca else ssl.CERT_NONE,
        lifespan="on",
        log_level=log_level,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    # uvicorn ends by raising the signal that stopped it: a coordinator that was asked to stop, and did, has not failed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1 if app.state.host.failing else 0))
    server = Server(config)
    server.run()
    if not server.started:
        sys.exit(1)
