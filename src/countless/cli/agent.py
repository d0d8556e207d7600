"""`countless agent`: one site for a host, for programs in any language."""

from pathlib import Path
from typing import Annotated

import typer

from countless.cli.options import DEFAULT_URL, Token, Url

EXAMPLE = "Example:  countless agent --statsd-port 8125 & echo 'jobs:1|c' | nc -u -w0 127.0.0.1 8125"


def agent(
    url: Url = DEFAULT_URL,
    token: Token = None,
    site: Annotated[
        str | None, typer.Option(envvar="COUNTLESS_SITE", help="Name the site; by default after the host.")
    ] = None,
    statsd_host: Annotated[str, typer.Option(help="Listen for StatsD datagrams on this address.")] = "127.0.0.1",
    statsd_port: Annotated[int, typer.Option(help="Listen for StatsD on this port; 0 lets the system choose.")] = 8125,
    statsd_socket: Annotated[
        Path | None, typer.Option(help="Listen for StatsD on this Unix datagram socket, too.")
    ] = None,
    statsd_prefix: Annotated[str, typer.Option(help="Put this before the names of StatsD counters, such as web.")] = "",
    per: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN=PER",
            help="Give matching counters windows: 'http.*=hour', 'a=day,Europe/Berlin,6'.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Read more such rules, and [envoy], from this TOML file: per = [...].")
    ] = None,
    http_host: Annotated[
        str, typer.Option(help="Listen for HTTP on this address: /add, budgets, /readyz, /metrics.")
    ] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(help="Listen for HTTP on this port; 0 lets the system choose.")] = 2687,
    http_socket: Annotated[Path | None, typer.Option(help="Listen for HTTP on this Unix socket, too.")] = None,
    allow_plaintext: Annotated[
        bool, typer.Option("--allow-plaintext", help="Listen beyond loopback, without authentication.")
    ] = False,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            envvar="COUNTLESS_CLIENT_STATE_DIR", help="Store counts in this directory, so that kill -9 loses none."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0, help="Deliver the final counts within this many seconds of SIGTERM.")
    ] = 5.0,
) -> None:
    """Count for programs in any language, by StatsD and HTTP.

    It is one site for a whole host, and stops on SIGTERM. --per can be
    repeated: the first rule that matches a counter holds.
    """
    from countless.agent.rules import AgentFile, WindowRules, read_agent_file
    from countless.agent.run import ListenConfig, run
    from countless.client.client import connect

    where = ListenConfig(statsd_host, statsd_port, statsd_socket, http_host, http_port, http_socket, allow_plaintext)
    file = AgentFile([], None) if config is None else read_agent_file(config)
    rules = WindowRules([*(per or []), *file.per])
    client = connect(url, token, site, state_dir)
    run(client, where, statsd_prefix, rules, file.envoy)
    if not client.close(timeout):
        typer.echo(f"countless: not delivered: {client.last_error or 'no answer in time'}", err=True)
        raise typer.Exit(1)
