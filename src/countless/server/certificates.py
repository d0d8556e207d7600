"""Renewed certificates without a restart: SIGHUP reads the files again, and new connections get what they have."""

import logging
import ssl

from countless.server.settings import Settings

log = logging.getLogger("countless.tls")


def reload_certificate(context: ssl.SSLContext | None, settings: Settings) -> bool:
    """True if the files were read. If they can't be used, the old certificate stays, and that is logged.

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
