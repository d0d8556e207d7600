"""`countless serve`: run a coordinator."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example:  countless serve --state-dir /var/lib/countless --port 2686"


def serve(
    host: Annotated[str | None, typer.Option(help="Listen on this address.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option(help="Listen on this port; 0 lets the system choose.", show_default="2686")
    ] = None,
    state_dir: Annotated[
        str | None, typer.Option(help="Store counts in this directory.", show_default="countless-state")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Read settings from this TOML file.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Allow this relative error to counters without their own.")
    ] = None,
    silent_after: Annotated[
        str | None, typer.Option(help="Report a site as unreachable after this long, such as 10s.")
    ] = None,
    nats: Annotated[str | None, typer.Option(help="Share this NATS broker with other coordinators: nats://...")] = None,
    tls_cert: Annotated[str | None, typer.Option(help="Use TLS with the certificate in this PEM file.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="Read the key of the certificate from this PEM file.")] = None,
    tls_client_ca: Annotated[
        str | None, typer.Option(help="Require client certificates signed by the CA in this PEM file.")
    ] = None,
    allow_plaintext: Annotated[
        bool | None, typer.Option("--allow-plaintext", help="Listen beyond loopback without TLS.")
    ] = None,
    open_: Annotated[
        bool | None,
        typer.Option("--open", help="Let every program on this machine do everything, without a token."),
    ] = None,
    after_restore: Annotated[
        bool | None,
        typer.Option(
            "--after-restore",
            help="Start from a backup: grant nothing before all sites have reported.",
        ),
    ] = None,
    log_level: Annotated[
        str,
        typer.Option(
            envvar="COUNTLESS_LOG_LEVEL", help="Log from this level: critical, error, warning, info or debug."
        ),
    ] = "warning",
    log_format: Annotated[
        str, typer.Option(envvar="COUNTLESS_LOG_FORMAT", help="Log in plain text, or in json: one object on each line.")
    ] = "plain",
) -> None:
    """Run a coordinator, until SIGTERM.

    It stores the counts of all sites, publishes totals and grants budgets.
    Use --open on a machine of your own only, and never behind a proxy. Use
    --after-restore for one start; leave it out next time.
    """
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
        "open": open_,
        "after_restore": after_restore,
    }
    run(load_settings(flags, file=config), log_level, log_format)
