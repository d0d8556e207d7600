"""`countless serve`: run a coordinator."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example:  countless serve --state-dir /var/lib/countless --port 2686"


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 lets the system choose. [default: 2686]")] = None,
    state_dir: Annotated[
        str | None, typer.Option(help="Directory of the stored counts. [default: countless-state]")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with settings.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Relative error allowed to counters without a setting of their own.")
    ] = None,
    silent_after: Annotated[
        str | None, typer.Option(help="Timeout after which a site is unreachable, such as 10s.")
    ] = None,
    nats: Annotated[str | None, typer.Option(help="URL of the NATS broker that several coordinators share.")] = None,
    tls_cert: Annotated[str | None, typer.Option(help="PEM file with the certificate; enables TLS.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="PEM file with its key.")] = None,
    tls_client_ca: Annotated[
        str | None, typer.Option(help="PEM file; clients need a certificate signed by it.")
    ] = None,
    allow_plaintext: Annotated[
        bool | None, typer.Option("--allow-plaintext", help="Listen beyond loopback without TLS.")
    ] = None,
    open_: Annotated[
        bool | None,
        typer.Option("--open", help="Every program on this machine is operator, without a token. Not behind a proxy."),
    ] = None,
    after_restore: Annotated[
        bool | None,
        typer.Option(
            "--after-restore",
            help="The stored state is an older copy: budgets grant nothing until all sites have told what they spent. "
            "Once; start without it next time.",
        ),
    ] = None,
    log_level: Annotated[
        str, typer.Option(envvar="COUNTLESS_LOG_LEVEL", help="critical, error, warning, info or debug.")
    ] = "warning",
    log_format: Annotated[
        str, typer.Option(envvar="COUNTLESS_LOG_FORMAT", help="plain, or json for one object on each line.")
    ] = "plain",
) -> None:
    """Run a coordinator, which stores the counts of all sites and publishes totals. Stops on SIGTERM."""
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
