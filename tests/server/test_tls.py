"""TLS between client and coordinator, with certificates on one side or on both."""

from pathlib import Path

import pytest
import trustme

import countless
from countless.errors import InvalidParameter
from countless.server.settings import Settings
from support.service import Server, until

pytestmark = pytest.mark.slow


def files(directory: Path) -> dict[str, str]:
    """An authority, a certificate for this machine, and one for a site."""
    authority = trustme.CA()
    machine, site = authority.issue_cert("127.0.0.1"), authority.issue_cert("site@example.org")
    names = {name: str(directory / f"{name}.pem") for name in ("ca", "cert", "key", "site")}
    authority.cert_pem.write_to_path(names["ca"])
    machine.cert_chain_pems[0].write_to_path(names["cert"])
    machine.private_key_pem.write_to_path(names["key"])
    site.private_key_and_cert_chain_pem.write_to_path(names["site"])
    return names


def test_counting_and_reading_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem = files(tmp_path)
    with Server(tmp_path / "state", "--tls-cert", pem["cert"], "--tls-key", pem["key"]) as server:
        assert server.url.startswith("https://")
        stranger = countless.connect(server.url, site="stranger")
        stranger.counter("hits").add()
        until(lambda: "certificate" in str(stranger.last_error).lower(), "it does not trust the authority")
        assert not stranger.close(0)
        monkeypatch.setenv("COUNTLESS_CA", pem["ca"])
        with countless.connect(server.url, site="a") as client:
            client.counter("hits").add(5)
            assert client.flush()
            assert server.answer("hits")["estimate"] == 5


def test_client_without_a_certificate_is_refused_if_one_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = files(tmp_path)
    monkeypatch.setenv("COUNTLESS_CA", pem["ca"])
    options = ("--tls-cert", pem["cert"], "--tls-key", pem["key"], "--tls-client-ca", pem["ca"])
    with Server(tmp_path / "state", *options) as server:
        anonymous = countless.connect(server.url, site="anonymous")
        anonymous.counter("hits").add()
        until(lambda: anonymous.last_error, "the refusal")
        assert not anonymous.close(0)
        monkeypatch.setenv("COUNTLESS_CERT", pem["site"])
        with countless.connect(server.url, site="a") as client:
            client.counter("hits").add(5)
            assert client.flush()
            assert server.answer("hits")["estimate"] == 5


def test_settings_allow_any_address_with_a_complete_certificate() -> None:
    Settings(host="192.0.2.1", tls_cert="cert.pem", tls_key="key.pem").require_safe()
    with pytest.raises(InvalidParameter, match="tls_cert and tls_key need each other"):
        Settings(tls_cert="cert.pem").require_safe()
    with pytest.raises(InvalidParameter, match="tls_cert and tls_key need each other"):
        Settings(tls_client_ca="ca.pem").require_safe()
