"""The commands of the service in a shell: serve, add, get, watch, counter, site, token, validate."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

import countless
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketConnection
from countless.core.messages import Report
from countless.server.storage.schema import SCHEMA
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.frames import VERSION, Hello, Join, UpItem, encode_frames
from support.commands import run_command
from support.service import TIMEOUT_S, Server, environment

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("state")) as server:
        yield server


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "countless.cli.main", *arguments]


def run(*arguments: str, url: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, COUNTLESS_URL=url, **variables)


def test_new_coordinator_tells_that_there_is_nothing_yet(server: Server) -> None:
    for words, line in {
        ("counter", "list"): "no counters: nothing was counted yet",
        ("site", "list"): "no sites: no program is connected",
        ("budget", "list"): "no budgets: `countless budget create NAME --limit N` makes one",
    }.items():
        told = run(*words, url=server.url)
        assert (told.returncode, told.stdout, told.stderr) == (0, f"{line}\n", "")
        assert json.loads(run(*words, "--json", url=server.url).stdout) == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("counter creat x", "Did you mean 'create'?"),
        ("counter set x", "nothing to change: give --alpha"),
        ("budget lst", "Did you mean 'list'"),
        ("token create sight", "scope must be one of: site, read, operator (did you mean 'site'?)"),
        ("rate x --rolling soon", "rolling must be a duration such as 30s, 15m, 1h or 7d, from 1s to 3660d"),
        ("quantile ms 2", "q must be a quantile from p0 to p100, such as p99, 99% or 0.99"),
        ("site forget", "give the name of a site or --older-than, and not both"),
        ("site forget x --older-than 3d", "give the name of a site or --older-than, and not both"),
        ("get ''", "name must be 1 to 500 printable characters"),
        ("quantile none", "there is no distribution 'none'"),
    ],
)
def test_wrong_argument_is_one_line_with_the_remedy(server: Server, words: str, problem: str) -> None:
    refused = run(*(word.strip("'") for word in words.split()), url=server.url)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert refused.stderr.startswith("countless: ")
    assert problem in refused.stderr


def test_add_then_get_from_two_processes(server: Server) -> None:
    assert run("add", "shell", "5", url=server.url).returncode == 0
    assert run("add", "shell", url=server.url).returncode == 0
    assert run("get", "shell", url=server.url).stdout == "shell: 6 (from 6 to 6; exact)\n"
    answer = json.loads(run("get", "shell", "--json", url=server.url).stdout)
    assert set(answer) == {"counter", "estimate", "lower", "upper", "state", "as_of", "per"}
    listed = json.loads(run("counter", "list", "--json", url=server.url).stdout)
    assert [each["counter"] for each in listed] == ["shell"]
    assert run("get", "nothing", url=server.url).stderr == "countless: there is no counter 'nothing'\n"


def metrics(server: Server) -> str:
    with urlopen(f"{server.url}/metrics", timeout=TIMEOUT_S) as response:  # noqa: S310
        return str(response.read().decode())


def test_total_of_programs_that_have_ended_is_exact_for_every_reader(server: Server) -> None:
    for site in ("web-1", "web-2"):
        with countless.connect(server.url, site=site) as client:
            client.counter("over").add(1_000)
            assert client.flush()
            before = server.answer("over")
    assert before["state"] == "holding"
    assert before["estimate"] > 2_000
    assert run("get", "over", url=server.url).stdout == "over: 2,000 (from 2,000 to 2,000; exact)\n"
    answer = json.loads(run("get", "over", "--json", url=server.url).stdout)
    assert [answer[field] for field in ("lower", "estimate", "upper", "state")] == [2_000, 2_000, 2_000, "exact"]
    assert server.answer("over").items() >= {"estimate": 2_000, "upper": 2_000}.items()
    exported = f'countless_count_total{{counter="over"}} {float(before["estimate"])}'
    assert exported in metrics(server)
    server.kill()
    server.start()
    assert server.answer("over").items() >= {"estimate": 2_000, "upper": 2_000, "state": "exact"}.items()
    assert exported in metrics(server)


def test_watch_prints_possibly_then_certainly_then_ends(server: Server) -> None:
    with countless.connect(server.url, site="web-1") as client:
        client.counter("marked").add(900)
        assert client.flush()
        assert "web-1: connected, 1 counters" in run("site", "list", url=server.url).stdout
        watch = subprocess.Popen(
            command("watch", "marked", "--over", "1k", "--url", server.url),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert watch.stdout is not None
        assert "marked: " in watch.stdout.readline()
        client.counter("marked").add(100)
        assert client.flush()
        client.counter("marked").add(100)
        _, errors = watch.communicate(timeout=TIMEOUT_S)
    assert errors == "possibly over 1,000\ncertainly over 1,000\n"
    assert watch.returncode == 0


def test_watch_receives_changed_answers_only(server: Server) -> None:
    link = WebSocketConnection(Endpoint.parse(server.url), None)
    server.reader.request("POST", "/api/v1/counters", {"name": "quiet"})
    watch = server.reader.watch("quiet")
    assert next(watch)["estimate"] == 0
    frames: list[list[UpItem]] = [
        [Hello(VERSION, "x", 1), Join("quiet", 0, 0)],  # a site joins with zero events
        [Report("quiet", 0, 0, 1)],  # and reports nothing new
        [Report("quiet", 0, 3, 2)],
    ]
    for items in frames:
        link.send(next(encode_frames(items)))
    seen = next(watch)
    assert (seen["estimate"], set(seen)) == (3, {"counter", "estimate", "lower", "upper", "state", "as_of", "per"})
    watch.close()
    link.close()


def test_unreachable_coordinator_is_one_line_and_an_exit_code() -> None:
    nowhere = "http://127.0.0.1:9"
    added = run("add", "x", "--timeout", "0.1", url=nowhere)
    assert (added.returncode, added.stdout) == (1, "")
    assert "not delivered" in added.stderr
    got = run("get", "x", url=nowhere)
    assert got.returncode == 2
    assert got.stderr.startswith("countless: no coordinator at http://127.0.0.1:9: ")
    mark = run("watch", "x", "--over", "-1", url=nowhere)
    assert (mark.returncode, "over = -1 is not allowed" in mark.stderr) == (2, True)


def test_tokens_are_created_listed_and_revoked(tmp_path: Path) -> None:
    state = ("--state-dir", str(tmp_path))
    first = run("token", "create", "site", "--label", "fleet", "--site", "web", "--expires", "30d", *state)
    token = first.stdout.strip()
    assert token.startswith("countless-site-")
    assert f"no coordinator has used {tmp_path} yet" in first.stderr
    listed = run("token", "list", *state).stdout
    assert re.fullmatch(r"site\tfleet\tweb\t[0-9a-f]{12}\tcreated 2\S+Z\texpires 2\S+Z\tused never\n", listed)
    assert token not in listed
    rotated = run("token", "rotate", "fleet", "--overlap", "0s", *state)
    assert (rotated.stdout.startswith("countless-site-"), rotated.stderr) == (True, "")
    before, after = run("token", "list", *state).stdout.splitlines()
    assert "\texpired 2" in before or "\texpired 2" in after
    assert run("token", "revoke", "fleet", *state).stdout == "2 revoked\n"
    assert run("token", "revoke", "fleet", *state).returncode == 1
    assert run("token", "list", *state).stdout == ""
    for arguments, problem in (
        (("create", "everything"), "scope = 'everything'"),
        (("create", "site", "--expires", "soon"), "expires = 'soon'"),
        (("create", "site", "--expires", "0s"), "from 1s to 36500d"),
        (("rotate",), "missing argument 'label'"),
        (("rotate", "fleet"), "the label of a valid token"),
        (("rotate", "fleet", "--overlap", "-1s"), "overlap = '-1s'"),
    ):
        refused = run("token", *arguments, *state)
        assert (refused.returncode, problem in refused.stderr) == (2, True), refused.stderr
    assert run("token", "list", *state).stdout == ""


def test_token_in_a_directory_without_a_coordinator_is_refused_or_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (["create", "site"], ["list"], ["revoke", "x"], ["list", "--state-dir", "elsewhere"]):
        refused = run("token", *arguments)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert f"{tmp_path}/{'elsewhere' if 'elsewhere' in arguments else 'countless-state'}" in refused.stderr
    assert list(tmp_path.iterdir()) == []
    made = run("token", "create", "site", "--state-dir", "elsewhere")
    assert made.stdout.startswith("countless-site-")
    assert f"no coordinator has used {tmp_path}/elsewhere yet" in made.stderr
    again = run("token", "create", "operator", "--state-dir", "elsewhere")
    assert (again.returncode, again.stderr) == (0, "")


def test_serve_rejects_bad_settings_before_it_listens(tmp_path: Path) -> None:
    state = ("--state-dir", str(tmp_path), "--port", "0")
    beyond = run("serve", "--host", "192.0.2.1", *state)
    assert (beyond.returncode, "--allow-plaintext" in beyond.stderr) == (2, True)
    opened = run("serve", "--open", "--host", "192.0.2.1", "--allow-plaintext", *state)
    assert (opened.returncode, "loopback address with --open" in opened.stderr) == (2, True)
    import sqlite3

    SqliteStore(tmp_path / "countless.sqlite").close()
    database = sqlite3.connect(tmp_path / "countless.sqlite")
    database.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    database.close()
    newer = run("serve", *state)
    assert (newer.returncode, "newer Countless" in newer.stderr) == (2, True)


def test_health_and_forget(server: Server) -> None:
    port = server.url.rpartition(":")[2]
    alive = run("health", COUNTLESS_PORT=port)
    assert (alive.returncode, alive.stdout) == (0, "alive\n")
    assert run("health", "--url", "http://127.0.0.1:9").returncode == 1
    assert run("site", "forget", "--older-than", "30d", url=server.url).stdout == "0 removed\n"
    unknown = run("site", "forget", "unknown", url=server.url)
    assert (unknown.returncode, unknown.stdout) == (1, "0 removed: there is no site 'unknown'\n")
    wrong = run("site", "forget", "--older-than", "long", url=server.url)
    assert (wrong.returncode, "older-than = 'long'" in wrong.stderr) == (2, True)


def test_validate_names_the_first_error(tmp_path: Path) -> None:
    file = tmp_path / "countless.toml"
    file.write_text('alpha = 0.02\nsilent_after = "5s"\n')
    assert "silent_after = 5.0\n" in run("validate", str(file)).stdout
    file.write_text("alpha = 7\n")
    wrong = run("validate", str(file))
    assert (wrong.returncode, "alpha = 7" in wrong.stderr) == (2, True)


def test_revoking_nothing_leaves_tokens_without_a_label(tmp_path: Path) -> None:
    """As `countless token revoke "$LABEL"` in a shell where the variable isn't set."""
    with Server(tmp_path):
        assert run("token", "create", "read", "--state-dir", str(tmp_path)).returncode == 0
    refused = run("token", "revoke", "", "--state-dir", str(tmp_path))
    assert (refused.returncode, "a label, or the first digits of a hash" in refused.stderr) == (2, True)
    assert "read\t" in run("token", "list", "--state-dir", str(tmp_path)).stdout


def test_backup_does_not_advise_removing_a_directory(tmp_path: Path) -> None:
    with Server(tmp_path):
        refused = run("backup", str(tmp_path), "--state-dir", str(tmp_path))
    assert (refused.returncode, refused.stderr) == (2, f"countless: {tmp_path} is not a file: choose another name\n")
