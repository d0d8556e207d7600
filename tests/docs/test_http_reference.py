"""The examples of docs/reference/http.md are what a coordinator answers."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import countless
from support.service import TIMEOUT_S, Server
from tools.http_api import GROUPS, Example, examples, title

NAMES = {"counter", "name", "site", "per", "tz"}  # a field of these has the value that is shown


@pytest.mark.slow
def test_examples_are_what_a_coordinator_answers(tmp_path: Path) -> None:
    with Server(tmp_path) as server, countless.connect(server.url, site="web-1") as client:
        requests = client.counter("requests")
        requests.add(12)
        requests.labels(route="/a").inc(95)
        client.counter("visits", per="day", tz="Europe/Berlin").add(3)
        client.distribution("latency_ms").observe(17, 4)
        assert client.flush(TIMEOUT_S)
        for name, example in examples().items():
            status, text = answer(server.url, example)
            assert status == example.status, name
            if example.answer.startswith("{"):
                assert_has(json.loads(text), shown(example.answer), name)
            else:
                pattern = re.escape(example.answer).replace(r"107\.0", r"[\d.]+")
                assert re.search(pattern.partition(r"\ \{")[0], text), name


@pytest.mark.parametrize("operation", [each for group in GROUPS.values() for each in group], ids=title)
def test_every_operation_has_an_example(operation: Any) -> None:
    example = examples()[title(operation)]
    assert example.method == operation.method
    path, _, query = example.address.partition("?")
    assert re.fullmatch(re.sub(r"\{\w+\}", ".+", operation.path), path)
    assert set(re.findall(r"(\w+)=", query)) <= set(operation.query)


def answer(url: str, example: Example) -> tuple[int, str]:
    fields = {"content-type": "application/json"} if example.body else {}
    request = Request(url + example.address, example.body.encode() or None, fields, method=example.method)  # noqa: S310
    try:
        with urlopen(request, timeout=TIMEOUT_S) as reply:  # noqa: S310 - our own coordinator
            stream = reply.headers.get("content-type", "").startswith("text/event-stream")
            lines = [reply.readline(), reply.readline()] if stream else [reply.read()]
            return reply.status, b"".join(lines).decode()
    except HTTPError as problem:
        return problem.code, problem.read().decode()


def shown(text: str) -> Any:
    """The fields of an answer, without those that `...` stands for."""
    return json.loads(re.sub(r"(?:,\s+)?\.\.\.(?=[]}])", "", text))


def assert_has(real: Any, expected: Any, where: str) -> None:
    """Every field that is expected is there, with a value of this kind."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            assert name in real, f"{where}: no {name}"
            assert_has(real[name], value, f"{where}.{name}")
            assert name not in NAMES or real[name] == value, f"{where}.{name}"
    elif isinstance(expected, list):
        assert bool(real) is bool(expected), where
        for one, other in zip(real, expected, strict=False):
            assert_has(one, other, where)
    else:
        assert isinstance(real, int | float if type(expected) in (int, float) else type(expected)), where
