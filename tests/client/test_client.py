"""The client without a coordinator: it counts, does not block, does not raise, and can be disabled."""

import socket
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from threading import Thread

import pytest

import countless
from countless.client.durable.count_file import CountFile
from countless.core.messages import SetTrigger, SiteId
from countless.core.site import Site
from countless.core.triggers import EveryNth
from countless.errors import InvalidParameter
from countless.randomness import SeededRandom
from countless.wire.keys import COUNTER, Key
from support.local_counters import unreported
from support.service import TIMEOUT_S


@pytest.fixture
def mute_server() -> Iterator[str]:
    """An address that accepts connections and never sends anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_counting_continues_without_a_coordinator(mute_server: str) -> None:
    client = countless.connect(mute_server, site="here")
    hits = client.counter("hits")

    def work() -> None:
        for _ in range(5_000):
            hits.add()

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    hits.add(7)
    assert hits.count == 20_007
    assert not client.flush(0.01)
    assert not client.close(0.01)
    with pytest.raises(InvalidParameter, match="not been removed"):
        hits.add(2)


def test_client_that_has_counted_nothing_flushes_and_closes_at_once() -> None:
    client = countless.connect("http://127.0.0.1:9", site="here")
    client.counter("hits")
    assert client.flush(0)
    assert client.close(0)


def test_closed_client_promises_no_delivery(mute_server: str, caplog: pytest.LogCaptureFixture) -> None:
    client = countless.connect(mute_server, site="here")
    client.counter("hits").add()
    assert not client.close(0)
    client._on_status("the attempt that was under way")
    assert client.last_error == "the attempt that was under way"
    assert "under way" not in caplog.text


def test_disabled_client_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTLESS_DISABLE", "1")
    client = countless.connect("http://127.0.0.1:9")
    for _ in range(100):
        client.counter("hits").labels(route="/a").inc()
    assert client.flush(0)
    assert client.close(0)
    assert client.last_error is None


def test_disabled_client_keeps_nothing_in_its_state_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COUNTLESS_DISABLE", "1")
    with countless.connect(state_dir=tmp_path / "state") as client:
        client.counter("hits").add(5)
    assert list(tmp_path.iterdir()) == []


def test_unusable_state_dir_is_refused_by_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(countless.CountlessError, match=r"state_dir = .*file' cannot be used: it is not a directory"):
        countless.connect("http://127.0.0.1:9", state_dir=tmp_path / "file")
    monkeypatch.setenv("COUNTLESS_CLIENT_STATE_DIR", str(tmp_path / "file" / "below"))
    with pytest.raises(countless.CountlessError, match="Not a directory"):
        countless.connect("http://127.0.0.1:9")


def test_counting_continues_when_the_state_dir_is_deleted(mute_server: str, tmp_path: Path) -> None:
    client = countless.connect(mute_server, state_dir=tmp_path / "state")
    client.counter("hits").add(5)
    rmtree(tmp_path / "state")
    (tmp_path / "state").write_text("no directory any more")
    for number in range(300):  # more than the file has room for
        client.counter(f"{'x' * 490}{number}").add(2)
    client.counter("hits").add()
    assert client.counter("hits").count == 6
    assert client.counter(f"{'x' * 490}299").count == 2
    assert not client.close(0.01)
    assert client.counter("late").count == 0


def test_close_without_a_coordinator_leaves_the_counts_in_an_unlocked_file(mute_server: str, tmp_path: Path) -> None:
    client = countless.connect(mute_server, state_dir=tmp_path)
    client.counter("hits").add(5)
    assert not client.close(0.01)
    with pytest.raises(InvalidParameter, match="not been removed"):
        client.counter("hits").add()
    with pytest.raises(InvalidParameter, match="not been removed"):
        client.counter("hits").add(7)
    file = CountFile.open_orphan(next(tmp_path.iterdir()))
    assert file is not None
    assert (file.site_id.site, file.records(Key)[Key(COUNTER, "hits")].count) == (client.site, 5)
    file.release()


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTLESS_URL", "http://192.0.2.1:77")
    monkeypatch.setenv("COUNTLESS_SITE", "web-1")
    client = countless.connect()
    assert (client.site, "of http://192.0.2.1:77," in repr(client)) == ("web-1", True)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 501, 7])
def test_invalid_counter_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidParameter, match="counter"):
        countless.connect("http://127.0.0.1:9").counter(name)


@pytest.mark.parametrize("n", [-1, 1.5, True, "1", None])
def test_invalid_increment_is_refused_and_changes_nothing(n: int) -> None:
    hits = countless.connect("http://127.0.0.1:9").counter("hits")
    with pytest.raises(InvalidParameter):
        hits.add(n)
    assert hits.count == 0


NEXT = SiteId("here", 2)


@pytest.mark.parametrize(("delivered", "rest"), [(None, 0), (0, 30), (12, 18), (30, 0)])
def test_new_incarnation_starts_with_the_undelivered_events(delivered: int | None, rest: int) -> None:
    counter = unreported(Site("hits", SiteId("here", 1), SeededRandom(1)))
    counter.add(20)
    for _ in range(10):
        counter.add()
    counter.reset(NEXT, delivered)
    assert (counter.count, counter.counted) == (rest, 30)
    counter.add()
    counter.add(5)
    assert counter.count == rest + 6
    snapshot, _ = counter.rejoin_messages()
    assert (snapshot.round, snapshot.count) == (0, rest + 6)
    assert counter.receive(SetTrigger("hits", 3, EveryNth(2), 0)) != ()
    assert counter.close().count == rest + 6
    assert counter.rejoin_messages()[0].count == rest + 6
    counter.reset(NEXT, 0)  # the coordinator asks for a rejoin while the client is leaving
    assert counter.rejoin_messages()[0].count == rest + 6
