"""TLS towards coordinators and brokers, configured by the environment."""

import os
import ssl


def client_tls_context() -> ssl.SSLContext:
    """Trust the system's certificate authorities, or those in the file `COUNTLESS_CA`.

    `COUNTLESS_CERT` names a PEM file with our own certificate and its key, for servers that require one.
    """
    authorities, certificate = os.environ.get("COUNTLESS_CA"), os.environ.get("COUNTLESS_CERT")
    try:
        context = ssl.create_default_context(cafile=authorities or None)
    except OSError as error:
        raise OSError(f"COUNTLESS_CA = {authorities!r} is not a readable PEM file: {error}") from None
    if certificate:
        try:
            context.load_cert_chain(certificate)
        except OSError as error:
            raise OSError(f"COUNTLESS_CERT = {certificate!r} is not a readable PEM file: {error}") from None
    return context
