import base64
import json
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from countless.errors import InvalidParameter, MissingExtra
from countless.wire.nats_url import Broker, BrokerNode, Credentials


def test_address_gives_nodes_and_login() -> None:
    broker = Broker.parse("nats://me:s%40cret@one:1,two,[::1]:3")
    assert broker.nodes == (BrokerNode("one", 1, False), BrokerNode("two", 4222, False), BrokerNode("::1", 3, False))
    assert broker.login == {"user": "me", "pass": "s@cret"}
    assert (broker.base, repr(broker)) == ("nats://one:1,two:4222,[::1]:3", f"<Broker at {broker.base}>")
    assert Broker.parse("tls://token@one").login == {"auth_token": "token"}
    assert Broker.parse("tls://token@one").nodes[0].secure


@pytest.mark.parametrize(
    "url", ["http://a", "nats://", "nats://me:secret@a:b", "nats://me:secret@a/path", "nats://a,,b"]
)
def test_bad_address_is_refused_without_showing_the_password(url: str) -> None:
    with pytest.raises(InvalidParameter, match="nats://127") as caught:
        Broker.parse(url)
    assert "secret" not in str(caught.value)


def test_file_without_credentials_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({"user": "me"}))
    for path in (tmp_path / "file", tmp_path / "nothing"):
        with pytest.raises(InvalidParameter, match="COUNTLESS_NATS_CREDS"):
            Credentials(path)


def test_credentials_sign_the_nonce_of_the_broker(tmp_path: Path) -> None:
    key = _write_credentials(tmp_path / "creds")
    credentials = Credentials(tmp_path / "creds")
    assert credentials.jwt == "eyJ0.e30.x-_"
    signature = base64.urlsafe_b64decode(credentials.sign("nonce") + b"==")
    key.public_key().verify(signature, b"nonce")


def test_credentials_without_cryptography_name_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_credentials(tmp_path / "creds")
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(MissingExtra, match=r"countless\[nats\]"):
        Credentials(tmp_path / "creds")


def _write_credentials(path: Path) -> Ed25519PrivateKey:
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    seed = base64.b32encode(b"\x95\x00" + bytes(range(32)) + b"\x00\x00").decode().rstrip("=")
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\neyJ0.e30.x-_\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    return key
