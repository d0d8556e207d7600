"""A closed coordinator from its first start on, behind a real nginx with the configuration of the page about TLS."""

import logging
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from socket import socket

import pytest
import trustme

import countless
from countless.client.api import ApiClient
from countless.client.transport.base import ConnectionLost
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketConnection
from countless.errors import ServiceError
from countless.token_file import OPERATOR_TOKEN_FILE, read_token
from support.commands import run_command
from support.service import TIMEOUT_S, Server, until

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs/operate/tokens-and-tls.md").read_text(encoding="utf-8")
STOCK = "server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {upstream}; }} }}"
NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ }}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    {servers}
}}
"""


def free_ports(number: int) -> list[int]:
    sockets = [socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def documented(upstream: str, port: int, folder: Path) -> str:
    """The configuration that the page shows, with addresses and files of this test."""
    found = re.search(r"```nginx\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    config = found[1]
    for shown, used in (
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("http://127.0.0.1:2686;", f"{upstream};"),
        ("/etc/ssl/certs/counts.example.pem", f"{folder}/cert.pem"),
        ("/etc/ssl/private/counts.example.key", f"{folder}/key.pem"),
    ):
        assert config.count(shown) == 1
        config = config.replace(shown, used)
    return config


@contextmanager
def nginx(folder: Path, servers: str) -> Iterator[None]:
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, servers=servers))
    program = which("nginx") or which("nginx", path="/usr/sbin")
    assert program, "nginx is needed: sh requirements/system.sh"
    process = subprocess.Popen([program, "-p", str(folder), "-c", str(folder / "nginx.conf")])
    try:
        until(lambda: (folder / "pid").exists() and (folder / "pid").read_text().strip(), "nginx has started")
        yield
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def certificate(folder: Path) -> str:
    authority = trustme.CA()
    machine = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    machine.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    machine.private_key_pem.write_to_path(str(folder / "key.pem"))
    return str(folder / "ca.pem")


def refusals(url: str) -> list[str]:
    """What a stranger without a token is told."""
    told = []
    for path in ("counters", "sites", "budgets", "watch/hits"):
        with pytest.raises(ServiceError, match="a token of scope") as refused:
            ApiClient(url).request("GET", f"/api/v1/{path}")
        told.append(str(refused.value))
    with pytest.raises(ConnectionLost, match=r"refuses \((403|404)\)"):  # 404: a proxy that passes no upgrade on
        WebSocketConnection(Endpoint.parse(url), None)
    return told


def test_nothing_is_open_behind_nginx(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)  # that of the client; the coordinator has it, too
    monkeypatch.chdir(tmp_path)  # no state directory is found by itself
    monkeypatch.setenv("COUNTLESS_CA", certificate(tmp_path))
    state, ports = tmp_path / "state", free_ports(4)
    shown, stock, opened, stock_opened = ports
    with (
        Server(state, "--log-level", "debug", closed=True) as server,
        Server(tmp_path / "open") as open_server,
        nginx(
            tmp_path,
            documented(server.url, shown, tmp_path)
            + STOCK.format(upstream=server.url, port=stock)
            + documented(open_server.url, opened, tmp_path).partition("}\n")[2]  # the map stands there once
            + STOCK.format(upstream=open_server.url, port=stock_opened),
        ),
    ):
        url, tokens = f"https://127.0.0.1:{shown}", [read_token(state / OPERATOR_TOKEN_FILE)]
        until(lambda: ApiClient(url).request("GET", "/livez"), "nginx answers")
        assert open_server.reader.request("GET", "/api/v1/sites") == {"sites": []}  # directly, it is open
        for port, scheme in ((shown, "https"), (stock, "http"), (opened, "https"), (stock_opened, "http")):
            assert len(refusals(f"{scheme}://127.0.0.1:{port}")) == 4
        refusals(server.url)

        def token(*arguments: str) -> str:
            made = run_command("token", *arguments, "--state-dir", str(state))
            assert made.returncode == 0, made.stderr
            tokens.append(made.stdout.strip())
            return tokens[-1]

        commands = re.findall(r"^ {4}countless token (.*) --state-dir \S+$", PAGE, re.MULTILINE)
        site, read = (token(*command.split()) for command in commands)
        for name, text in (("site", site), ("read", read)):
            (tmp_path / name).write_text(text)
        checked = run_command("doctor", "--url", url, COUNTLESS_TOKEN_FILE=str(tmp_path / "read"))
        assert "ok   allowed       to read" in checked.stdout
        monkeypatch.setenv("COUNTLESS_TOKEN_FILE", str(tmp_path / "site"))
        with countless.connect(url, site="web") as client:
            client.counter("hits").add(5)
            assert client.flush(TIMEOUT_S)
            watch = ApiClient(url, read).watch("hits", TIMEOUT_S)
            assert next(watch)["estimate"] == 5
            (tmp_path / "site").write_text(token("rotate", "fleet", "--overlap", "0s"))
            client.counter("hits").add(2)  # the connection ends; the next has the new token
            until(lambda: server.reader.answer("hits")["estimate"] == 7, "the events after the rotation")
            assert run_command("token", "revoke", "dashboards", "--state-dir", str(state)).returncode == 0
            assert all(answer["estimate"] <= 7 for answer in watch)  # until the stream ends
        monkeypatch.delenv("COUNTLESS_TOKEN_FILE")
        found = run_command("get", "hits", COUNTLESS_URL=server.url, COUNTLESS_STATE_DIR=str(state))
        assert found.stdout.startswith("hits: 7 ")
        for label in ("fleet", "first start"):
            assert run_command("token", "revoke", label, "--state-dir", str(state)).returncode == 0
        assert (
            run_command("token", "list", "--state-dir", str(state)).stdout == ""
        )  # no token is left, and nothing is open
        refusals(server.url)
        refusals(url)
        assert server.stop() == 0
        server.start()  # makes another for the operator
        assert server.answer("hits")["estimate"] == 7
        logged = "".join((*capfd.readouterr(), caplog.text, (tmp_path / "access.log").read_text()))
    assert f"operator token created, commands on this machine find it: file={state / OPERATOR_TOKEN_FILE}" in logged
    assert "< GET /api/v1/site" in logged  # the level is in force
    assert not [each for each in tokens if each in logged]
    assert "authorization" not in logged.lower()
