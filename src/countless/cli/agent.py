"""`countless agent`: one site per host, for programs in any language."""

from pathlib import Path
from typing import Annotated

import typer

from countless.cli.options import DEFAULT_URL, Token, Url

EXAMPLE = "Example:  countless agent --statsd-port 8125 & echo 'jobs:1|c' | nc -u -w0 127.0.0.1 8125"


def agent(
    url: Url = DEFAULT_URL,
    token: Token = None,
    site: Annotated[
        str | None, typer.Option(envvar="COUNTLESS_SITE", help="Name of the site; by default that of the host.")
    ] = None,
    statsd_host: Annotated[str, typer.Option(help="Address for StatsD datagrams.")] = "127.0.0.1",
    statsd_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for StatsD; 0 lets the system choose.")
    ] = 8125,
    statsd_socket: Annotated[
        Path | None, typer.Option(help="Path of a Unix datagram socket for StatsD, in addition.")
    ] = None,
    statsd_prefix: Annotated[str, typer.Option(help="Prefix of the names of StatsD counters, such as web.")] = "",
    per: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN=PER",
            help="Windows of the counters that match: 'http.*=hour', 'orders=day,Europe/Berlin,6'. Repeat it; "
            "the first match counts.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with more of these rules, after those given here: per = [...].")
    ] = None,
    http_host: Annotated[str, typer.Option(help="Address for POST /add, budgets, /readyz and /metrics.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(min=0, max=65535, help="Port for HTTP; 0 lets the system choose.")] = 2687,
    http_socket: Annotated[Path | None, typer.Option(help="Path of a Unix socket for HTTP, in addition.")] = None,
    allow_plaintext: Annotated[
        bool, typer.Option("--allow-plaintext", help="Allow addresses beyond loopback, without authentication.")
    ] = False,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            envvar="COUNTLESS_CLIENT_STATE_DIR", help="Store counts in files here, so that kill -9 loses none."
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to deliver the final counts after SIGTERM.")] = 5.0,
) -> None:
    """Count for programs in any language: StatsD over UDP or a Unix socket, and HTTP. Stops on SIGTERM."""
    from countless.client.client import connect
    from countless.errors import MissingExtra

    try:
        from countless.agent.rules import WindowRules, rules_in
        from countless.agent.run import ListenConfig, run
    except ModuleNotFoundError as missing:
        raise MissingExtra(str(missing.name), "server") from None

    where = ListenConfig(statsd_host, statsd_port, statsd_socket, http_host, http_port, http_socket, allow_plaintext)
    rules = WindowRules([*(per or []), *(rules_in(config) if config else [])])
    client = connect(url, token, site, state_dir)
    run(client, where, statsd_prefix, rules)
    if not client.close(timeout):
        typer.echo(f"countless: not delivered: {client.last_error or 'no answer in time'}", err=True)
        raise typer.Exit(1)
