"""Ask the coordinator of this machine whether it is well: with TLS or without, and without a token."""

import http.client
import os
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

from countless.server.settings import Settings
from countless.wire.nats_url import netloc

TIMEOUT_S = 2.0


def local_url(settings: Settings) -> str:
    """The address of the coordinator that has these settings, from its own machine."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # addresses to listen on
    host = everywhere.get(settings.host, settings.host)
    return f"{'https' if settings.tls_cert else 'http'}://{netloc(host, settings.port)}"


def probe_local(settings: Settings, path: str) -> tuple[int, str]:
    """As `probe`, of the coordinator that has these settings. A unit may give it TLS by variables that a shell does not
    have, so the other scheme is tried too.
    """
    url = local_url(settings)
    try:
        return probe(url, path)
    except (OSError, http.client.HTTPException):
        scheme, _, rest = url.partition("://")
        with suppress(OSError, http.client.HTTPException):
            return probe(f"{'http' if scheme == 'https' else 'https'}://{rest}", path)
        raise


def probe(url: str, path: str) -> tuple[int, str]:
    """Status and body. Raises OSError or HTTPException if there is no response."""
    address = urlsplit(url)
    if address.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            address.netloc, timeout=TIMEOUT_S, context=_any_certificate()
        )
    else:
        connection = http.client.HTTPConnection(address.netloc, timeout=TIMEOUT_S)
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
