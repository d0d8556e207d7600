"""Rules of an agent: which of its counters have windows."""

from pathlib import Path

import pytest

from countless.agent.rules import WITHOUT, WindowRules, read_agent_file
from countless.errors import InvalidParameter


def test_first_rule_that_matches_counts() -> None:
    rules = WindowRules(["http.internal.*=none", "http.*=hour", "*.orders=day,Europe/Berlin,6", "*.?=month,,15"])
    assert rules.find("http.internal.get") == WITHOUT
    assert rules.find("http.get") == {"per": "hour", "tz": "UTC", "anchor": None}
    assert rules.find("shop.orders") == {"per": "day", "tz": "Europe/Berlin", "anchor": 6}
    assert rules.find("shop.x") == {"per": "month", "tz": "UTC", "anchor": 15}
    assert rules.find("shop.xy") == rules.find("http") == rules.find("ahttp.get") == WITHOUT
    assert WindowRules().find("http.get") == WITHOUT


def test_pattern_may_have_an_equals_sign() -> None:
    assert WindowRules(["a=b=hour"]).find("a=b")["per"] == "hour"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("http.*", "PATTERN=PER"),
        ("=hour", "PATTERN=PER"),
        ("http.*=", "per = ''"),
        ("http.*=year", "per = 'year'"),
        ("http.*=hour,Nowhere/Town", "tz = 'Nowhere/Town'"),
        ("http.*=hour,UTC,60", "anchor = 60"),
        ("http.*=hour,UTC,x", "PATTERN=PER,TZ,ANCHOR"),
        ("http.*=hour,UTC,0,0", "PATTERN=PER,TZ,ANCHOR"),
        ("http.*=none,Europe/Berlin", "can't be used for counters without windows"),
    ],
)
def test_invalid_rule_is_refused(rule: str, message: str) -> None:
    with pytest.raises(InvalidParameter, match=f"per = .* must be PATTERN=PER .*{message}|{message}") as refused:
        WindowRules([rule])
    assert (refused.value.parameter, refused.value.value) == ("per", rule)


def test_file_has_a_list_of_rules(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('per = ["http.*=hour",\n  "orders=day"]  # comment\n')
    assert read_agent_file(file).per == ["http.*=hour", "orders=day"]
    file.write_text("")
    assert read_agent_file(file).per == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('per = "http.*=hour"', "per = 'http.*=hour' .* a list of rules in quotes"),
        ("per = [1]", r"per = \[1\] "),
        ('every = ["a=hour"]', "config = 'every' .* made of: per, envoy"),
        ("per = [", "a readable TOML file"),
        ("envoy = 1", r"envoy = 1 .* a section: \[envoy\]"),
    ],
)
def test_invalid_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)
    with pytest.raises(InvalidParameter, match=message):
        read_agent_file(file)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"config = .*none.toml.* a readable TOML file"):
        read_agent_file(tmp_path / "none.toml")
