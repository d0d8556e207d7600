"""`countless get` of a counter with labels, and `countless top`."""

import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

import countless
from countless.cli import top
from countless.cli.main import main
from support.service import Server

pytestmark = pytest.mark.slow


def run(words: str, url: str) -> tuple[int, str]:
    output = StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(output):
        patch.setenv("COUNTLESS_URL", url)
        patch.setattr(sys, "argv", ["countless", *words.split()])
        with pytest.raises(SystemExit) as ended:
            main()
    return int(ended.value.code or 0), output.getvalue()


def test_counter_with_labels_is_read_as_a_sum_and_its_largest_series_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(tmp_path) as server, countless.connect(server.url) as client:
        requests = client.counter("requests")
        requests.labels(tenant="acme").add(30)
        requests.labels(tenant="umbrella").add(9)
        requests.add(1)
        assert client.flush()
        assert run("get requests", server.url) == (0, "requests: 40 (from 40 to 40; exact)\n")
        assert run("counter list", server.url)[1].splitlines()[0] == "requests: 40 (from 40 to 40; exact)"
        code, text = run("top requests --share 5%", server.url)
        assert code == 0
        assert text.splitlines()[0] == "requests: 40 (from 40 to 40; exact), 5.00% or more:"
        assert [line.split()[-1] for line in text.splitlines()[1:]] == ['{tenant="acme"}', '{tenant="umbrella"}']
        assert json.loads(run("top requests --json", server.url)[1])["series"][2]["counter"] == "requests"
        seen = client.top("requests", 0.5, rolling="1h")
        assert [each.estimate for each in seen.series] == [30]
        rounds = iter([None])
        monkeypatch.setattr(top, "sleep", lambda _: next(rounds))
        with pytest.raises(StopIteration):
            top.top("requests", url=server.url, live=True)
        for words, problem in {
            "top requests --share lots": "a share such as 1% or 0.01",
            "top requests --share 0": "a number from 0 to 1, 0 excluded",
            "top requests --rolling 5m --window now": "give --window or --rolling, and not both",
            "top requests --window today": "'requests",
            "top nothing": "there is no counter 'nothing'",
        }.items():
            code, text = run(words, server.url)
            assert (code, problem in text) == (2, True), text
