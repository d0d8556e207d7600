"""Addresses and credentials of a broker: `nats://user:password@host:4222,other:4222`, `tls://...`, credentials files.

The broker itself enforces TLS, passwords, tokens, signed credentials and permissions by subject.
"""

import base64
import binascii
import os
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from countless.errors import InvalidParameter, MissingExtra

DEFAULT_PORT = 4222
SCHEMES = ("nats://", "tls://")
_ALLOWED = "an address such as nats://127.0.0.1:4222, or several with commas between them"


def netloc(host: str, port: int) -> str:
    """Host and port, as URLs write them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class BrokerNode(NamedTuple):
    host: str
    port: int
    secure: bool

    @property
    def netloc(self) -> str:
        return netloc(self.host, self.port)


class Broker(NamedTuple):
    """The parts of an address. `repr` and `base` leave the secrets out."""

    nodes: tuple[BrokerNode, ...]
    login: dict[str, str]  # fields of NATS's CONNECT

    def __repr__(self) -> str:
        return f"<Broker at {self.base}>"

    @property
    def base(self) -> str:
        scheme = "tls" if self.nodes[0].secure else "nats"
        return f"{scheme}://{','.join(node.netloc for node in self.nodes)}"

    @classmethod
    def parse(cls, url: str, name: str = "url") -> "Broker":
        """From the addresses of one or several nodes, with commas between them. `name` is for the error message."""
        scheme = next((each for each in SCHEMES if url.startswith(each)), None)
        if scheme is None:
            raise InvalidParameter(name, redact(url), _ALLOWED)
        nodes, login = [], {}
        for part in url.removeprefix(scheme).split(","):
            parts = urlsplit(part if "://" in part else scheme + part)
            try:
                host, port = parts.hostname, parts.port or DEFAULT_PORT
            except ValueError:
                raise InvalidParameter(name, redact(url), _ALLOWED) from None
            if not host or parts.path.strip("/") or parts.query:
                raise InvalidParameter(name, redact(url), _ALLOWED)
            nodes.append(BrokerNode(host, port, scheme == "tls://"))
            if parts.username and parts.password is not None:
                login = {"user": unquote(parts.username), "pass": unquote(parts.password)}
            elif parts.username:
                login = {"auth_token": unquote(parts.username)}
        return cls(tuple(nodes), login)


def redact(url: str) -> str:
    """The address without user and password.

    >>> redact("nats://me:secret@broker:4222")
    'nats://...@broker:4222'
    """
    scheme, mark, rest = url.rpartition("://")
    return f"{scheme}{mark}{'...@' if '@' in rest else ''}{rest.rpartition('@')[2]}"


class Credentials:
    """A file as `nsc` writes it: a signed user JWT, and the seed of the key that signs the broker's nonce."""

    def __init__(self, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8")
            self.jwt = _section(text, "NATS USER JWT")
            seed = _section(text, "USER NKEY SEED")
            self._key = _private_key(base64.b32decode(seed + "=" * (-len(seed) % 8))[2:34])
        except (OSError, ValueError, IndexError, binascii.Error):
            raise InvalidParameter("COUNTLESS_NATS_CREDS", str(path), "a credentials file of NATS") from None

    @classmethod
    def from_environment(cls) -> "Credentials | None":
        """Those of `COUNTLESS_NATS_CREDS`, if it is set."""
        path = os.environ.get("COUNTLESS_NATS_CREDS")
        return cls(Path(path)) if path else None

    def sign(self, nonce: str) -> bytes:
        """The signature in base64."""
        signature: bytes = self._key.sign(nonce.encode())
        return base64.urlsafe_b64encode(signature).rstrip(b"=")


def _section(text: str, title: str) -> str:
    return text.split(f"BEGIN {title}-----")[1].split("-----")[0].strip().rstrip("-").strip()


def _private_key(raw: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise MissingExtra("cryptography", "nats") from None
    return Ed25519PrivateKey.from_private_bytes(raw)
