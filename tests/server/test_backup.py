"""A coordinator that is restored from a backup while its sites go on counting."""

from pathlib import Path

import pytest

import countless
from support.commands import run_command
from support.service import TIMEOUT_S, Server, until

pytestmark = pytest.mark.slow


def test_sites_that_still_run_send_what_they_counted_after_the_backup(tmp_path: Path) -> None:
    state, copy = str(tmp_path / "state"), str(tmp_path / "copy")
    with Server(tmp_path / "state") as server, countless.connect(server.url, site="web-1") as client:
        hits, pages = client.counter("hits"), client.counter("pages", family=True).labels(page="/a")
        hits.add(100)
        pages.add(10)
        assert client.flush(TIMEOUT_S)
        assert run_command("backup", copy, "--state-dir", state).returncode == 0
        hits.add(50)
        pages.add(5)
        assert client.flush(TIMEOUT_S)
        server.kill()
        assert run_command("restore", copy, "--state-dir", state).returncode == 0
        server.start()
        assert client.flush(TIMEOUT_S)
        until(lambda: server.inspect("hits")["known"] == 150, "the counts of the site")
        until(lambda: server.answer("hits")["state"] in ("exact", "holding"), "that all sites have answered")
        until(lambda: server.answer("pages")["lower"] == 15, "the labels of the site")
