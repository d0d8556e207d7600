"""`countless serve`: run a coordinator."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example:  countless serve --state-dir /var/lib/countless --port 2686"


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 lets the system choose. [default: 2686]")] = None,
    state_dir: Annotated[str | None, typer.Option(help="Where totals are kept. [default: countless-state]")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with settings.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Error allowed to counters nobody configured.")] = None,
    silent_after: Annotated[str | None, typer.Option(help="How long a site may be silent, such as 10s.")] = None,
    nats: Annotated[str | None, typer.Option(help="Be one of many coordinators behind this broker.")] = None,
    tls_cert: Annotated[str | None, typer.Option(help="PEM file with the certificate: speak TLS.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="PEM file with its key.")] = None,
    tls_client_ca: Annotated[str | None, typer.Option(help="PEM file: demand certificates signed by it.")] = None,
    allow_plaintext: Annotated[
        bool | None, typer.Option("--allow-plaintext", help="Listen beyond loopback without TLS.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="critical, error, warning, info or debug.")] = "warning",
) -> None:
    """Run a coordinator: sites connect, totals are kept, anybody who may can read them. Stops on SIGTERM."""
    from countless.server.serve import serve as run
    from countless.server.settings import load_settings

    flags = {
        "host": host,
        "port": port,
        "state_dir": state_dir,
        "alpha": alpha,
        "silent_after": silent_after,
        "nats": nats,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tls_client_ca": tls_client_ca,
        "allow_plaintext": allow_plaintext,
    }
    run(load_settings(flags, file=config), log_level)
