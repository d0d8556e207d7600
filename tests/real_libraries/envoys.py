"""Envoy, an agent beside it, and an origin behind it, in an environment that has what `countless[envoy]` installs."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Self
from urllib.request import urlopen

from support.service import TIMEOUT_S, environment, until

PYTHON = os.environ.get("ENVOY_PYTHON", "")
SOURCES = Path(__file__).parents[2] / "src"


class Process:
    """A process with a log, which tests may kill."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("w") as output:
            variables = environment(PYTHONPATH=str(SOURCES))
            self.process = subprocess.Popen(command, env=variables, stdout=output, stderr=output)

    def find(self, pattern: str) -> str:
        """What the log says, as soon as it does."""

        def found() -> re.Match[str] | None:
            assert self.process.poll() is None, self.log()
            return re.search(pattern, self.log())

        group: str = until(found, pattern).group(1)
        return group

    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()


class GatewayAgent(Process):
    """`countless agent` with a section for Envoy. After `kill`, another with its `listen` takes its place."""

    def __init__(self, url: str, folder: Path, rules: str, listen: str = "127.0.0.1:0") -> None:
        folder.mkdir(exist_ok=True)
        (folder / "agent.toml").write_text(f'[envoy]\nlisten = "{listen}"\n{rules}')
        options = ["--statsd-port", "0", "--http-port", "0", "--config", str(folder / "agent.toml")]
        options += ["--state-dir", str(folder / "state")]
        super().__init__([PYTHON, "-m", "countless.cli.main", "agent", "--url", url, *options], folder / "agent.log")
        self.listen = self.find(r"grpc(?:://|\+)(\S+)")
        self.http = self.find(r"http://(127\.0\.0\.1:\d+)")

    def metrics(self) -> dict[str, float]:
        with urlopen(f"http://{self.http}/metrics", timeout=TIMEOUT_S) as answer:
            lines = (line.rpartition(" ") for line in answer.read().decode().splitlines() if not line.startswith("#"))
            return {name: float(value) for name, _, value in lines}


class Envoy(Process):
    """An Envoy on loopback with one route to an origin, or with an answer of its own.

    Args:
        agent: Where it answers. None: without the filter.
        actions: The `rate_limits` of the route.
        page: The example of our documentation instead of these.
        filter_options: More fields of the filter.
    """

    def __init__(
        self,
        folder: Path,
        origin: str | None,
        agent: str | None = None,
        actions: Sequence[Any] = (),
        page: Mapping[str, Any] | None = None,
        **filter_options: Any,
    ) -> None:
        folder.mkdir(exist_ok=True)
        config = envoy_config(origin, agent, actions, filter_options)
        if page is not None:
            _follow(page, config["static_resources"])
        (folder / "envoy.json").write_text(json.dumps(config))
        (packages,) = Path(PYTHON).parents[1].glob("lib/python*/site-packages")
        options = ["-c", str(folder / "envoy.json"), "--concurrency", "1", "--disable-hot-restart", "-l", "warning"]
        admin = folder / "admin"
        admin.unlink(missing_ok=True)
        options += ["--admin-address-path", str(admin)]
        super().__init__([str(packages / "envoy/_bin/envoy"), *options], folder / "envoy.log")

        def listening() -> str | None:
            assert self.process.poll() is None, self.log()
            if not admin.exists() or ":" not in admin.read_text():
                return None
            with urlopen(f"http://{admin.read_text()}/listeners?format=json", timeout=TIMEOUT_S) as answer:
                statuses = json.load(answer).get("listener_statuses", [])
            ports = [status["local_address"]["socket_address"]["port_value"] for status in statuses]
            return f"127.0.0.1:{ports[0]}" if ports and ports[0] else None

        self.address: str = until(listening, "Envoy listens")

    def get(self, path: str = "/", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Names of header fields are in lower case."""
        with closing(HTTPConnection(self.address, timeout=TIMEOUT_S)) as connection:
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request("GET", path, headers=names)
            response = connection.getresponse()
            return response.status, {key.lower(): value for key, value in response.getheaders()}, response.read()


def envoy_config(
    origin: str | None, agent: str | None, actions: Sequence[Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    limit: dict[str, Any] = {
        "name": "envoy.filters.http.ratelimit",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
            "domain": "edge",
            "failure_mode_deny": True,
            "timeout": f"{TIMEOUT_S}s",
            "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
            "rate_limit_service": {
                "grpc_service": {"envoy_grpc": {"cluster_name": "agent"}},
                "transport_api_version": "V3",
            },
            **options,
        },
    }
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
    }
    answer = {"direct_response": {"status": 200, "body": {"inline_string": "ok"}}}
    route: dict[str, Any] = {
        "match": {"prefix": "/"},
        **(answer if origin is None else {"route": {"cluster": "origin"}}),
    }
    if agent is not None:
        route["typed_per_filter_config"] = {
            limit["name"]: {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute",
                "rate_limits": actions,
            }
        }
    manager = {
        "@type": f"{_NETWORK}.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "edge",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [router] if agent is None else [limit, router],
    }
    http2 = {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
    }
    clusters = [] if origin is None else [_cluster("origin", origin)]
    if agent is not None:
        clusters.append({**_cluster("agent", agent), "typed_extension_protocol_options": http2})
    listener = {
        "name": "edge",
        "address": _address("127.0.0.1:0"),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    return {
        "admin": {"address": _address("127.0.0.1:0")},
        "static_resources": {"listeners": [listener], "clusters": clusters},
    }


def _follow(page: Mapping[str, Any], resources: dict[str, Any]) -> None:
    manager = resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_filters"][:0] = page["http_filters"]
    manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"]["rate_limits"] = page["rate_limits"]
    resources["clusters"] += page["clusters"]


_NETWORK = "type.googleapis.com/envoy.extensions.filters.network"


def _cluster(name: str, address: str) -> dict[str, Any]:
    endpoint = {"endpoint": {"address": _address(address)}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": f"{TIMEOUT_S}s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _address(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}


class Origin:
    """Counts the requests that reach it, by path: the witness."""

    def __init__(self) -> None:
        counts: dict[str, int] = {}
        lock = Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with lock:
                    counts[self.path] = counts.get(self.path, 0) + 1
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self.counts = counts
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
