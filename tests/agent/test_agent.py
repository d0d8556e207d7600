"""A real agent and a real coordinator: datagrams, requests, a real gunicorn; processes are killed, nothing is lost."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

import pytest

from support.agent import Agent
from support.service import TIMEOUT_S, Server, environment, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With an alpha so small that everything in these tests is counted exactly."""
    with Server(tmp_path_factory.mktemp("state"), "--alpha", "1e-6") as server:
        yield server


@pytest.fixture(scope="module")
def agent(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """One for all tests that do not stop it; each test has counters of its own."""
    with Agent(
        server.url, "--site", "host-1", "--per", "win.*=hour", unix=tmp_path_factory.mktemp("run") / "statsd"
    ) as agent:
        yield agent


def wait_for_lines(agent: Agent, lines: int) -> None:
    """Until so many lines were read, so that the receive buffer is free again."""
    until(lambda: agent.metrics()["countless_agent_lines_total"] >= lines, f"{lines} lines")


def known(server: Server, counter: str) -> int:
    """The count that the coordinator knows exactly."""
    return int(server.inspect(quote(counter))["known"])


def test_counters_that_match_a_rule_have_windows(server: Server, agent: Agent) -> None:
    agent.send(b"win.jobs:3|c\nwindow.jobs:1|c")
    assert agent.request("POST", "/add", {"counter": "win.jobs", "n": 4})[0] == 200
    until(lambda: known(server, "win.jobs") == 7, "7 events")
    until(lambda: known(server, "window.jobs") == 1, "one event")

    def in_windows() -> int:
        windows = server.reader.request("GET", "/api/v1/windows/win.jobs")["windows"]
        return sum(window["estimate"] for window in windows)

    until(lambda: in_windows() == 7, "7 events in windows, once they are saved")


def test_statsd_over_udp_is_counted(server: Server, agent: Agent) -> None:
    agent.send(*[b"udp.jobs:1|c\nudp.jobs:2|c|#queue:orders,urgent\nudp.jobs:1|c|@0.1\nudp.level:7|g"] * 10)
    until(lambda: known(server, "udp.jobs") == 130, "130 events, with and without labels")
    until(lambda: known(server, 'udp.jobs{queue="orders",urgent="true"}') == 20, "20 labelled events")
    assert server.sites()[0]["site"] == "host-1"


def test_statsd_over_a_unix_socket_is_counted(server: Server, agent: Agent) -> None:
    assert agent.unix is not None
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for _ in range(2_000):  # far beyond what the kernel keeps: the sender waits, and nothing is lost
            sender.sendto(b"unix.jobs:3|c", str(agent.unix))
    until(lambda: known(server, "unix.jobs") == 6_000, "2,000 times three")
    assert agent.metrics()[f'countless_agent_datagrams_total{{socket="unix:{agent.unix}"}}'] == 2_000


def test_adds_over_http_are_counted(server: Server, agent: Agent) -> None:
    assert agent.request("POST", "/add", {"counter": "http.jobs", "n": 5}) == (200, {"added": 5})
    assert agent.request("POST", "/add", {"counter": "http.jobs"}) == (200, {"added": 1})
    several = [{"counter": "http.jobs", "n": 4}, {"counter": "http.jobs", "n": 2, "labels": {"queue": "ü"}}]
    assert agent.request("POST", "/add", several) == (200, {"added": 6})
    until(lambda: known(server, "http.jobs") == 12, "twelve, with and without labels")
    until(lambda: known(server, 'http.jobs{queue="ü"}') == 2, "two")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"counter": "bad", "n": -1}, "`int` >= 0 - at `$.n`"),
        ({"counter": "bad", "n": 1.5}, "Expected `int`, got `float` - at `$.n`"),
        ({"counter": "bad", "n": True}, "Expected `int`, got `bool` - at `$.n`"),
        ({"counter": "bad", "n": 1 << 63}, "at `$.n`"),
        ({"counter": 7}, "Expected `str`, got `int` - at `$.counter`"),
        ({"counter": ""}, "must be printable, at most 500 characters with all labels and its window"),
        ({"n": 7}, "missing required field `counter`"),
        ({"counter": "bad", "number": 1}, "unknown field `number`"),
        ({"counter": "bad", "labels": {"k": 1}}, "Expected `str`, got `int` - at `$.labels[...]`"),
        ({"counter": "bad", "labels": {"k": "v" * 500}}, "at most 500 characters"),
        ({"counter": "bad", "labels": {'k="v",j': "w"}}, "must be letters, digits"),
        ([{"counter": "bad"}, {"counter": "bad", "labels": {"": "w"}}], "at `$[1].labels`"),
        ([{"counter": "bad", "n": 1}, {"counter": "bad", "n": "1"}], "Expected `int`, got `str` - at `$[1].n`"),
        ([{"counter": "bad", "n": 1}, {"counter": "a\nb"}], "at `$[1].counter`"),
        ("bad", "Expected"),
        (b"", "truncated"),
        (b"\xff\xfe{}", "malformed"),
        (b"[" * 100_000, "body"),
    ],
)
def test_bad_request_names_the_field_and_counts_nothing(
    server: Server, agent: Agent, body: object, problem: str
) -> None:
    status, answer = agent.request("POST", "/add", body)
    assert (status, problem in answer["error"]) == (400, True), answer
    assert agent.request("POST", "/add", {"counter": "bad.mark"})[0] == 200
    until(lambda: server.answer("bad.mark"), "the later request")
    assert "bad" not in [each["counter"] for each in server.reader.counters()]


def test_long_bodies_web_pages_and_unknown_paths_are_refused(agent: Agent) -> None:
    assert agent.request("POST", "/add", b" " * (1 << 18) + b"{}")[0] == 413
    status, answer = agent.request("POST", "/add", {"counter": "page"}, origin="https://example.org")
    assert (status, "web page" in answer["error"]) == (403, True)
    for path in ("/metrics", "/readyz"):  # a page that has bound its name to 127.0.0.1 sends no origin
        status, answer = agent.request("GET", path, host="attacker.example:2687")
        assert (status, "not a name of this agent" in answer["error"]) == (403, True)
        assert agent.request("GET", path, host="localhost")[0] == 200
    assert agent.request("GET", "/add")[0] == 405
    assert agent.request("GET", "/elsewhere")[0] == 404


def test_metrics_count_dropped_lines_by_reason_and_probes_answer(agent: Agent) -> None:
    before = agent.metrics()
    agent.send(b"seen:1|c\nseen:-1|c\nseen:0.5|c\nlevel:1|g\nnonsense")
    wait_for_lines(agent, int(before["countless_agent_lines_total"]) + 5)
    now = agent.metrics()
    for reason in ("negative", "fractional", "not a counter", "malformed"):
        name = f'countless_dropped_total{{reason="{reason}"}}'
        assert now[name] == before[name] + 1
    where = f'{{socket="udp://127.0.0.1:{agent.statsd[1]}"}}'
    assert now[f"countless_agent_kernel_drops_total{where}"] == 0
    assert now[f"countless_agent_receive_buffer_bytes{where}"] > 0
    until(lambda: agent.metrics()["countless_agent_connected"] == 1, "connected")
    assert agent.request("GET", "/livez") == (200, {"live": True})
    assert agent.request("GET", "/readyz") == (200, {"ready": True, "connected": True, "trouble": None})


def test_sigterm_drains_the_sockets_and_delivers_everything(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "statsd"
    with Agent(server.url, "--statsd-prefix", "last.", unix=path) as agent:
        agent.send(b"words:1|c")
        wait_for_lines(agent, 1)
        agent.process.send_signal(signal.SIGSTOP)  # what comes now waits in the kernel
        agent.send(*[b"words:1|c\nwords:5|c|@0.5"] * 50)
        agent.process.send_signal(signal.SIGTERM)
        agent.process.send_signal(signal.SIGCONT)
        assert agent.wait() == (0, "")
    assert known(server, "last.words") == 1 + 50 * 11
    assert not path.exists()
    assert [site for site in server.sites() if site["site"] == socket.gethostname()] == []


def test_exit_code_is_1_if_the_final_counts_are_not_delivered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nowhere = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with Agent(nowhere, "--timeout", "0.1") as agent:
        agent.send(b"hits:1|c")
        wait_for_lines(agent, 1)
        code, errors = agent.stop()
    assert (code, "countless: not delivered: no coordinator at 127.0.0.1:" in errors) == (1, True)


APP = """
def app(environ, start_response):
    start_response("200 OK" if environ["PATH_INFO"] == "/" else "404 Not Found", [("Content-Length", "2")])
    return [b"ok"]
"""


@pytest.mark.parametrize("kind", ["udp", "unix"])
def test_statsd_of_an_unmodified_gunicorn_is_counted(server: Server, agent: Agent, tmp_path: Path, kind: str) -> None:
    (tmp_path / "tiny.py").write_text(APP)
    where = f"127.0.0.1:{agent.statsd[1]}" if kind == "udp" else f"unix://{agent.unix}"
    statsd = ("--statsd-host", where, "--statsd-prefix", f"app.{kind}")
    bind = tmp_path / "gunicorn"
    command = [sys.executable, "-m", "gunicorn", "tiny:app", "--bind", f"unix:{bind}", "--workers", "2", *statsd]
    gunicorn = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        until(lambda: listens(bind), "gunicorn listens")
        for number in range(120):
            request(bind, "/" if number % 3 else "/missing")
        until(lambda: known(server, f"app.{kind}.gunicorn.requests") == 120, "120 requests")
        until(lambda: known(server, f"app.{kind}.gunicorn.request.status.200") == 80, "80 of them found something")
        until(lambda: known(server, f"app.{kind}.gunicorn.request.status.404") == 40, "40 did not")
    finally:
        gunicorn.terminate()
        _, log = gunicorn.communicate(timeout=TIMEOUT_S)
    assert gunicorn.returncode == 0, log


def listens(bind: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(bind)) == 0  # the file exists a moment before the socket listens


def request(bind: Path, path: str) -> None:
    with closing(HTTPConnection("localhost", timeout=TIMEOUT_S)) as connection:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(bind))
        connection.request("GET", path)
        assert connection.getresponse().read() == b"ok"


def test_agent_counts_while_the_coordinator_is_down(server: Server) -> None:
    with Agent(server.url) as agent:
        agent.send(*[b"hits:1|c"] * 100)
        until(lambda: known(server, "hits") == 100, "the first hundred")
        server.kill()
        agent.send(*[b"hits:1|c"] * 100)
        wait_for_lines(agent, 200)
        until(lambda: agent.metrics()["countless_agent_connected"] == 0, "noticed")
        status, ready = agent.request("GET", "/readyz")
        assert (status, ready["ready"], ready["connected"]) == (200, True, False)
        assert agent.request("POST", "/add", {"counter": "hits", "n": 100})[0] == 200
        server.start()
        agent.send(*[b"hits:1|c"] * 33)
        wait_for_lines(agent, 233)
        code, errors = agent.stop()
    assert (code, "coordinator not reached, counting continues" in errors) == (0, True)
    assert known(server, "hits") == 333


def test_killed_agent_loses_nothing_with_a_state_dir(tmp_path: Path) -> None:
    kept = ("--state-dir", str(tmp_path / "agent"))
    with Server(tmp_path / "state") as server:  # with an error of 1 %: most of what is counted is not reported
        with Agent(server.url, *kept) as agent:
            agent.send(b"kept:5000|c", *[b"kept:1|c"] * 77)
            wait_for_lines(agent, 78)
            agent.process.kill()
        with Agent(server.url, *kept) as agent:
            agent.send(b"kept:1|c")
            wait_for_lines(agent, 1)
            assert agent.stop()[0] == 0
        assert known(server, "kept") == 5_078
