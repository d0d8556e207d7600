"""`countless health`: whether the coordinator of this machine responds, for containers and service managers."""

import http.client
import json
import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

if TYPE_CHECKING:
    from countless.server.settings import Settings

EXAMPLE = "Example:  countless health --ready"
TIMEOUT_S = 2.0


def health(
    url: Annotated[
        str | None,
        typer.Option(help="URL of the coordinator. [default: on this machine, with the settings of countless serve]"),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="The TOML file with the settings of countless serve.")] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="Also whether totals can be trusted: not while it is learning or stopping.")
    ] = False,
) -> None:
    """Exit 0 if the coordinator responds, and 1 if it does not. Works with TLS, and needs no token."""
    from countless.server.settings import load_settings

    address = urlsplit(url or _local_url(load_settings({}, file=config)))
    try:
        status, text = _get(address.scheme, address.netloc, "/readyz" if ready else "/livez")
    except (OSError, http.client.HTTPException) as error:
        typer.echo(f"countless: no answer from {address.scheme}://{address.netloc}: {error}", err=True)
        raise typer.Exit(1) from None
    if status != 200:
        problems = ", ".join(json.loads(text).get("problems", ())) if status == 503 else f"status {status}"
        typer.echo(f"countless: not ready: {problems}", err=True)
        raise typer.Exit(1)
    print("ready" if ready else "alive")


def _local_url(settings: "Settings") -> str:
    from countless.wire.nats_url import netloc

    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # addresses to listen on
    host = everywhere.get(settings.host, settings.host)
    return f"{'https' if settings.tls_cert else 'http'}://{netloc(host, settings.port)}"


def _get(scheme: str, place: str, path: str) -> tuple[int, str]:
    if scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            place, timeout=TIMEOUT_S, context=_any_certificate()
        )
    else:
        connection = http.client.HTTPConnection(place, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def _any_certificate() -> ssl.SSLContext:
    """A certificate is for the name that clients use, not for 127.0.0.1. Nothing secret is sent, so any will do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate := os.environ.get("COUNTLESS_CERT"):  # for coordinators that require one (tls_client_ca)
        context.load_cert_chain(certificate)
    return context
