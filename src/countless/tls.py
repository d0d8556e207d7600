"""TLS towards coordinators and brokers, configured by the environment."""

import os
import ssl


def client_tls_context() -> ssl.SSLContext:
    """Trust the system's certificate authorities, or those in the file `COUNTLESS_CA`.

    `COUNTLESS_CERT` names a PEM file with our own certificate and its key, for servers that require one.
    """
    context = ssl.create_default_context(cafile=os.environ.get("COUNTLESS_CA") or None)
    certificate = os.environ.get("COUNTLESS_CERT")
    if certificate:
        context.load_cert_chain(certificate)
    return context
