"""Every command that a page about doing something shows is run: here, smaller if it takes long, or by a named test."""

import gzip
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

import countless
from countless_lab.arena.adversaries.stop_after_jump import StopAfterJump
from countless_lab.arena.registry import ADVERSARIES
from support.commands import run_command
from support.service import TIMEOUT_S, Server, environment

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs/start", "docs/guides", "docs/operate", "docs/paper", "design/contributing")
PAGES = [page for folder in FOLDERS for page in sorted((ROOT / folder).glob("*.md"))]
SHELL = re.compile(r"^ {4}((?:countless|curl|gunicorn|uvicorn|node|pip|openssl|until|for|sleep|pytest)\s\S.*)$")
ELSEWHERE = {
    "pip install": "packaging/test_package.py",
    "countless serve": "support/service.py",
    "countless agent": "agent/test_agent.py",
    "curl 127.0.0.1:2687": "agent/test_agent.py",
    "countless token create site --label fleet": "server/test_reverse_proxy.py",
    "countless token create read --label dashboards": "server/test_reverse_proxy.py",
    "countless doctor --url": "server/test_reverse_proxy.py",
    "countless backup": "server/test_budget_failures.py",
    "countless restore": "server/test_budget_failures.py",
    "countless health": "server/test_systemd.py",
    "countless site forget": "cli/test_service.py",
    "countless lab report": "../lab/tests/cli/test_report.py",
    "countless lab scaling": "../lab/tests/arena/test_scaling.py",
    "countless lab audit": "../lab/tests/audit/test_audit_command.py",
    "countless budget watch": "cli/test_budget.py",
    "gunicorn": "server/test_prefork.py",
    "uvicorn": "docs/test_limit_requests_page.py",
    "until curl": "support/service.py",
    "sleep": "docs/test_limit_requests_page.py",
    "for port in": "docs/test_limit_requests_page.py",
    "for i in": "docs/test_limit_requests_page.py",
    "node": "examples/test_javascript.py",
    "pytest": "schemes/test_conformance.py",
    "countless get shop.gunicorn": "agent/test_agent.py",
    "countless get 'limited_requests": "asgi/test_limit_requests.py",
}
SMALLER = (
    (r"--sites 256", "--sites 16"),
    (r"--sites 10+", "--sites 100"),
    (r"--events 2e4", "--events 300"),
    (r"--events 1e\d+", "--events 1e4"),
    (r"(countless lab attack (?!.*--sites).*)", r"\1 --sites 16 --alpha 0.05"),
    (r"(countless lab attack (?!.*--events).*)", r"\1 --events 300"),
    (r"(countless lab attack .*)", r"\1 --trials 1 --jobs 1"),
    (r"(countless plan .*)", r"\1 --json"),
)


def shown(page: Path) -> list[str]:
    """The commands of a page, without comments, each once."""
    text = re.sub(r"^```python.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = text.replace("\\\n", " ").splitlines()
    found = [SHELL.match(line) for line in lines]
    cleaned = [re.sub(r"\s+# .*| && echo .*| &$", "", match[1]) for match in found if match]
    return list(dict.fromkeys(cleaned))


def here(page: str) -> list[str]:
    return [line for line in shown(ROOT / page) if not line.startswith(tuple(ELSEWHERE))]


def run(line: str, **variables: str) -> str:
    result = run_command(*shlex.split(line)[1:], **variables)
    assert result.returncode == 0, f"{line}: {result.stderr}"
    return result.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_is_run_by_a_test(page: Path) -> None:
    ran = Path(__file__).read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix()
    for line in shown(page):
        others = [path for start, path in ELSEWHERE.items() if line.startswith(start)]
        assert all((ROOT / "tests" / path).exists() for path in others)
        assert others or f'"{name}"' in ran, line


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("state")) as server:
        yield server


def serve_commands(server: Server, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What the commands print that ask a coordinator."""
    monkeypatch.setenv("COUNTLESS_URL", server.url)
    output = []
    for line in lines:
        if line.startswith("curl"):
            address = shlex.split(line)[-1].replace("http://127.0.0.1:2686", server.url)
            with urlopen(address, timeout=TIMEOUT_S) as reply:  # noqa: S310 - our own coordinator
                output.append(reply.readline().decode())
        else:
            output.append(run(line))
    return "\n".join(output)


@pytest.mark.slow
def test_commands_of_readers(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTLESS_URL", server.url)
    assert run("countless site list") == "no sites: no program is connected\n"
    run("countless add requests 3000000")
    output = serve_commands(server, here("docs/start/count.md"), monkeypatch)
    assert output.count("(from 3,000,000 to ") == 2
    assert "requests, last 15m: " in output
    (create,) = [line for line in here("docs/guides/accuracy.md") if line.startswith("countless counter")]
    assert run(create).startswith("orders: 0 ")
    run("countless counter delete requests")


@pytest.mark.slow
def test_first_deployment_as_it_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one machine, closed: everything that is started in the directory of the coordinator finds its token."""
    page = (ROOT / "docs/start/deploy.md").read_text(encoding="utf-8")
    program = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)[0]
    lines = [line for line in here("docs/start/deploy.md") if re.match("countless (get|watch)|curl", line)]
    monkeypatch.chdir(tmp_path)
    with Server(tmp_path / "countless-state", closed=True) as server:
        exec(program.replace("http://127.0.0.1:2686", server.url), {})  # noqa: S102 - our own page
        get, curl, watch = lines
        monkeypatch.setenv("COUNTLESS_URL", server.url)
        assert run(get) == "requests: 6 (from 6 to 6; exact)\n"
        typed = curl.replace("http://127.0.0.1:2686", server.url)
        read = subprocess.run(["/bin/sh", "-c", typed], capture_output=True, text=True, check=True)
        assert '"lower":6,' in read.stdout
        run("countless add requests 3000000")
        assert "(from 3,000,006 to " in run(watch)


@pytest.mark.slow
def test_commands_of_windows_and_labels(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/guides/windows.md").read_text(encoding="utf-8")
    questions = re.findall(r"`(countless (?:get|rate) requests[^`]*)`", page)
    assert len(questions) == 5
    create, change, delete, *curls = here("docs/guides/windows.md")
    serve_commands(server, [create, change], monkeypatch)
    with countless.connect(server.url, site="shown") as client:
        client.counter("requests", per="hour", tz="Europe/Berlin").labels(tenant="acme").inc(5)
        assert client.flush()
        assert "requests, last 15m: between " in serve_commands(server, questions + curls, monkeypatch)

        def interrupt(_: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("countless.cli.top.sleep", interrupt)
        top, live, now, last, today, total, quantile = here("docs/guides/top-and-quantiles.md")
        assert all("acme" in run(each) for each in (top, now, today, total))
        run(last)  # an hour in which nothing was counted
        assert "acme" in run_command(*shlex.split(live)[1:]).stdout
        client.distribution("latency_ms").observe(17)
        assert client.flush()
        assert "1 observations" in run(quantile)
    run(delete)


@pytest.mark.slow
def test_commands_of_budgets(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        here("docs/guides/limit-spending.md")
        + here("docs/guides/limit-functions.md")
        + here("docs/guides/llm-calls.md")
        + here("docs/guides/envoy.md")
        + here("docs/guides/web-frameworks.md")
        + here("docs/start/limit-requests.md")
    )
    script = "printf '%s\\n' " + next(line for line in lines if "$KEY" in line)
    variables = environment(KEY="me")
    expanded = subprocess.run(["/bin/sh", "-c", script], env=variables, stdout=subprocess.PIPE, text=True, check=True)
    own = " ".join(expanded.stdout.split())
    output = serve_commands(server, [own if "$KEY" in line else line for line in dict.fromkeys(lines)], monkeypatch)
    assert "acme/tokens" in output
    assert re.search(r"keys/[0-9a-f]{16}", own)


@pytest.mark.slow
def test_commands_with_tokens_and_a_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, site, read = [
        line for line in here("docs/start/deploy.md") if re.match("countless token|openssl", line)
    ]
    serve = next(line for line in shown(ROOT / "docs/start/deploy.md") if "--tls-cert" in line)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COUNTLESS_STATE_DIR", str(tmp_path / "state"))
    subprocess.run(shlex.split(certificate), check=True, capture_output=True)
    with Server(tmp_path / "state", *shlex.split(serve)[2:], closed=True) as server:
        tokens = [run(line).strip() for line in (site, read)]
        url = re.sub(r"//[^:]*", "//127.0.0.1", server.url)
        monkeypatch.setenv("COUNTLESS_CA", "cert.pem")
        with countless.connect(url, token=tokens[0]) as client:
            client.counter("requests").add(5)
            assert client.flush()
        assert run("countless get requests", COUNTLESS_URL=url, COUNTLESS_TOKEN=tokens[1]).startswith("requests: 5 ")
        assert "requests" in run(
            "countless counter list", COUNTLESS_URL=url
        )  # with the operator's token, found by itself


@pytest.mark.slow
def test_commands_of_plans_and_simulations_run_when_they_are_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{second},{'ab' if second % 9 else 'c'}\n" for second in range(900))
    Path("traffic.csv.gz").write_bytes(gzip.compress(f"t,site\n{rows}".encode()))
    lines = here("docs/guides/accuracy.md") + here("docs/start/count.md")
    for line in dict.fromkeys(line for line in lines if re.match("countless (plan|lab)", line)):
        run(smaller(line))


@pytest.mark.slow
def test_attacks_run_when_they_are_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    class Persistent(StopAfterJump):
        name = "persistent"

    monkeypatch.setitem(ADVERSARIES, "persistent", Persistent)
    lines = here("docs/paper/attacks.md") + here("design/contributing/add-an-adversary.md")
    lines += [line.replace("NAME", "deterministic") for line in here("design/contributing/add-a-scheme.md")]
    output = "".join(run(smaller(line)) for line in lines)
    assert "failure rate" in output
    assert "< 0.950" in output


@pytest.mark.soak
def test_attacks_end_as_the_tutorial_says() -> None:
    oblivious, broken, ours, _, reader, sampled = [run(line, COLUMNS="120") for line in here("docs/paper/attacks.md")]
    for output in (oblivious, ours, sampled):
        assert re.search(r" 0/20 .* < 0\.139", output)
    assert " 20/20 " in broken
    assert not re.search(r" 0/20 ", reader)


def smaller(line: str) -> str:
    for pattern, replacement in SMALLER:
        line = re.sub(pattern, replacement, line)
    return line
