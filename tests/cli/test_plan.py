"""`countless plan`: the table, the JSON, and errors that name the field and the limit."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from countless.cli.main import main
from countless.planning.budget import least_messages, most_messages
from countless.schemes.compare import calibrations, compare, crossovers, eligible, messages_on_day, messages_until
from support.commands import run_command

pytestmark = pytest.mark.slow


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command("plan", *arguments)


def test_json_has_choice_and_candidates() -> None:
    result: dict[str, Any] = json.loads(run("--sites", "64", "--alpha", "0.05", "--eta", "1e-4", "--json").stdout)
    assert result["choice"] in result["candidates"]
    assert result["deterministic"] == result["candidates"]["deterministic"]["messages_per_efold"]
    for name, candidate in result["candidates"].items():
        assert candidate["ratio"] == pytest.approx(candidate["messages_per_efold"] / result["deterministic"]), name
        assert candidate["plan"]["sites"] == 64
        assert candidate["safe_against"] in ("oblivious", "adaptive", "sees-everything")


def test_table_names_the_choice_and_the_reason() -> None:
    result = run("--sites", "64", "--alpha", "0.05", "--rate", "10000/s", "--adversary", "sees-everything")
    assert result.returncode == 0
    assert "is the cheapest with a proof" in result.stdout
    assert "on day 30" in result.stdout
    assert "partial_dp* " in result.stdout  # for 64 sites its round has no noise
    assert "partial_dp_paper " in result.stdout
    assert "* without noise" in result.stdout


@pytest.mark.soak
def test_no_number_is_cut_off_in_a_narrow_terminal() -> None:
    result = run("--sites", "100000", "--alpha", "0.001", "--rate", "100000/s", "--adversary", "sees-everything")
    assert re.search(r"deterministic +49,999,983 +1.000 ", result.stdout)
    assert "…" not in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--alpha", "0.7"), "alpha = 0.7"),
        (("--sites", "0"), "sites = 0"),
        (("--eta", "2"), "eta = 2"),
        (("--delta", "0"), "delta = 0"),
        (("--delta", "7", "--eta", "1e-4"), "delta = 7"),
        (("--sites", "100000000"), "sites = 100000000"),
        (("--rate", "fast"), "rate = 'fast'"),
        (("--adversary", "martian"), "adversary = 'martian'"),
        (("--budget", "0"), "budget = 0"),
        (("--budget", "1.5"), "budget = '1.5'"),
        (("--budget", "5", "--sites", "0"), "sites = 0"),
        (("--budget", "5", "--slack", "100%"), "slack = 1.0"),
        (("--zipf", "6"), "zipf = 6"),
        (("--zipf", "nan"), "zipf = nan"),
        (("--zipf", "1", "--sites", "0"), "sites = 0"),
        (("--zipf", "1", "--alpha", "0.7"), "alpha = 0.7"),
        (("--zipf", "1", "--events", "0"), "events = '0'"),
        (("--events", "10"), "--events is used only with --zipf"),
    ],
)
def test_invalid_input_names_the_field_and_exits_with_2(
    arguments: tuple[str, ...], named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["countless", "plan", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    output = capsys.readouterr()
    assert ended.value.code == 2
    assert named in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


def test_zipf_prices_every_scheme_and_flushes() -> None:
    uneven, balanced = (
        json.loads(run("--zipf", exponent, "--sites", "64", "--alpha", "0.05", "--json").stdout)["candidates"]
        for exponent in ("1.5", "0")
    )
    assert uneven.keys() == calibrations().keys() >= {"deterministic", "hyz"}
    for name, line in uneven.items():
        assert line["balanced"] == balanced[name]["balanced"]
        cheaper = name in ("deterministic", "dithered")
        assert (line["messages_per_efold"] < 0.9 * line["balanced"]) is cheaper, name
    text = run("--zipf", "1.0", "--sites", "64", "--alpha", "0.05", "--events", "1e6", "--rate", "100/s").stdout
    assert "64 sites, Zipf 1, 100 events/s, alpha = 0.05" in text
    assert "flush every 60s" in text
    assert "deterministic is the cheapest with a proof" in text
    assert "assumed" not in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_cost_of_a_budget_is_that_of_the_theorems() -> None:
    result = json.loads(run("--budget", "1e6", "--sites", "100", "--json").stdout)
    assert result == {
        "most_messages": most_messages(100, 10**6, 0.01),
        "least_messages": least_messages(100, 10**6, 0.01),
        "asking_for_each_unit": 2 * 10**6,
    }
    assert (
        "1,000,000 units, 100 sites, slack 0.01: at most 7,485 messages"
        in run("--budget", "1M", "--sites", "100").stdout
    )


def test_unsafe_schemes_are_not_eligible() -> None:
    for adversary, allowed in (
        ("sees-everything", {"deterministic", "sampled"}),
        ("adaptive", {"deterministic", "sampled", "dithered", "partial_dp", "partial_dp_paper"}),
    ):
        lines = compare(500, 0.05, 1e-4, adversary)
        assert {name for name, line in lines.items() if line.eligible} == allowed


def test_messages_of_days_add_up() -> None:
    days = sum(messages_on_day(day, 1e6, 5_000) for day in range(1, 11))
    assert days == pytest.approx(messages_until(1e7, 5_000))
    assert messages_until(100, 5_000) == 100


@pytest.mark.soak
@pytest.mark.parametrize(
    ("adversary", "order"), [("oblivious", ("lattice", "sampled")), ("adaptive", ("dithered", "sampled"))]
)
def test_each_scheme_is_the_cheapest_from_its_crossover_on(adversary: str, order: tuple[str, ...]) -> None:
    (_, first), *others = crossovers(0.15, 1e-3, adversary, most_sites=3_000)
    assert (first, *(name for _, name in others)) == ("deterministic", *order)
    ends = [start for start, _ in others[1:]] + [3_000]
    for (start, name), end in zip(others, ends, strict=True):
        assert name == eligible(compare(round((start * end) ** 0.5), 0.15, 1e-3, adversary))[0].name


def test_crossovers_are_where_the_cheapest_scheme_changes() -> None:
    for start, name in crossovers(0.05, 1e-3, "sees-everything", most_sites=100_000)[1:]:
        before, after = (compare(sites, 0.05, 1e-3, "sees-everything") for sites in (int(start * 0.9), start))
        assert after[name].messages_per_efold < after["deterministic"].messages_per_efold
        assert before[name].messages_per_efold > before["deterministic"].messages_per_efold
