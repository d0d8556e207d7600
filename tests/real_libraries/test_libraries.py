"""The adapters for libraries, each in a small program with the real library and a real coordinator."""

from collections.abc import Iterator
from typing import Any

import pytest

from integrations.base_classes import PLACES
from real_libraries.large import run
from support.service import Server

RULE = {"limit": 3, "slack": 0.0, "per": "month"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("state")) as server:
        for name in ("users/*", "teams/*"):
            rule = {"name": name, "limit": 1000, "slack": 0.0, "per": "month"}
            server.reader.request("POST", "/api/v1/budgets", rule)
        rule = {"name": "busy", "limit": 1, "slack": 0.0, "kind": "in_flight"}
        server.reader.request("POST", "/api/v1/budgets", rule)
        yield server


def test_base_classes_are_those_of_make_test() -> None:
    assert run("base_classes.py").splitlines() == list(PLACES)


def test_litellm_library(server: Server) -> None:
    assert run("litellm_library.py", COUNTLESS_URL=server.url).splitlines() == [
        "answer: Hi there",
        "stream: Hi there",
        "left for ada: allowed",
        "refused: users/ada",
        "failed: allowed",
        "call not limited, use litellm.acompletion: model=gpt-4o (0 others not logged)",
        "open: 0",
    ]


@pytest.mark.parametrize(
    ("program", "rule", "lines"),
    [
        (
            "langchain_models.py",
            RULE | {"name": "langchain"},
            [*["hello"] * 3, *["refused"] * 2, "False False", "wait"],
        ),
        ("llama_index_models.py", RULE | {"name": "llama-index", "limit": 4}, [*["hi there"] * 3, *["refused"] * 2]),
        (
            "pydantic_ai_agents.py",
            {"name": "agents", "limit": 2, "slack": 0.0, "kind": "in_flight"},
            ["6 runs, at most 2 at once", "all units are back", "a name without fields"],
        ),
    ],
)
def test_adapter(server: Server, program: str, rule: dict[str, Any], lines: list[str]) -> None:
    server.reader.request("POST", "/api/v1/budgets", rule)
    assert run(program, COUNTLESS_URL=server.url).splitlines() == lines
