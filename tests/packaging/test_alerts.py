"""Every alert rule, in the evaluator of Prometheus itself: when it fires, and when it does not yet."""

import re
from pathlib import Path
from subprocess import PIPE, STDOUT, run
from typing import Any, NamedTuple

import pytest
import yaml

RULES = Path(__file__).parents[2] / "deploy/prometheus/countless-alerts.yaml"
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}
COORDINATOR = 'instance="a:2686",job="countless"'
OTHER = 'instance="b:80",job="other"'
INSTANCE = {"instance": "a:2686", "job": "countless"}


class Case(NamedTuple):
    """Samples a minute apart, in the notation of promtool: `0x5 3+1x9` is six times 0, then 3, 4 ... 12.

    The alert fires in the minutes `firing`, and not in the minutes `quiet`.
    """

    alert: str
    samples: dict[str, str]
    quiet: tuple[int, ...]
    firing: tuple[int, ...] = ()
    labels: dict[str, str] = {}  # noqa: RUF012 - never changed
    value: str = ""


def slow(name: str, bound: str, fast: int) -> dict[str, str]:
    """Of 100 in a minute, `fast` take at most `bound` seconds."""
    return {
        f'{name}_bucket{{le="{bound}",{COORDINATOR}}}': f"0+{fast}x60",
        f'{name}_bucket{{le="2.5",{COORDINATOR}}}': "0+100x60",
        f'{name}_bucket{{le="+Inf",{COORDINATOR}}}': "0+100x60",
    }


def open_files(of: str, number: int) -> dict[str, str]:
    return {
        f"process_open_fds{{{of}}}": f"{number}x30",
        f"process_max_fds{{{of}}}": "100x30",
        f"countless_build_info{{{COORDINATOR}}}": "1x30",
    }


def leaked(units: int) -> dict[str, str]:
    return {
        f'countless_budget_leaked{{budget="acme",{COORDINATOR}}}': f"{units}x60",
        f'countless_budget_limit{{budget="acme",{COORDINATOR}}}': "1000x60",
    }


FAILURES, BEHIND = (
    f"countless_save_failures_total{{{COORDINATOR}}}",
    f"countless_answers_behind_seconds{{{COORDINATOR}}}",
)
STATE = f'countless_answer_state{{counter="%s",state="degraded",{COORDINATOR}}}'
DROPPED = f'countless_dropped_total{{reason="%s",{COORDINATOR}}}'
CASES = [
    Case("CountlessDown", {}, quiet=(1,), firing=(2, 9)),
    Case("CountlessDown", {f"countless_build_info{{{COORDINATOR}}}": "1x4 stale"}, quiet=(4, 6), firing=(7,)),
    Case("CountlessCannotSave", {FAILURES: "0x10 1x30", BEHIND: "0x40"}, (10, 11, 17), (12, 14), INSTANCE),
    Case("CountlessCannotSave", {FAILURES: "0x40", BEHIND: "10x10 11x9 0x9"}, (11, 21), (12, 20), INSTANCE),
    Case("CountlessSlowSaves", slow("countless_save_seconds", "1.0", 98), quiet=(10,), firing=(11, 30)),
    Case("CountlessSlowSaves", slow("countless_save_seconds", "1.0", 99), quiet=(11, 30, 59)),
    Case("CountlessLoopLag", slow("countless_loop_lag_seconds", "0.5", 98), quiet=(10,), firing=(11, 30)),
    Case("CountlessLoopLag", slow("countless_loop_lag_seconds", "0.5", 99), quiet=(11, 30, 59)),
    Case(
        "CountlessSilentSites",
        {
            f'countless_sites{{state="silent",{COORDINATOR}}}': "0x5 3x20 0x5",
            f'countless_sites{{state="connected",{COORDINATOR}}}': "9x40",
        },
        quiet=(20, 27),
        firing=(21, 26),
        value="3",
    ),
    Case("CountlessDegradedCounter", {STATE % "x": "0x5 1x60", STATE % "y": "0x90"}, (35,), (36,), value="1"),
    # The rate of five minutes is over one a second from the fifth minute on; then it must stay so for fifteen.
    Case("CountlessRefusals", {DROPPED % "a": "0+41x60", DROPPED % "b": "0+20x60"}, quiet=(19,), firing=(20, 59)),
    Case("CountlessRefusals", {DROPPED % "a": "0+40x60", DROPPED % "b": "0+20x60"}, quiet=(20, 59)),
    Case("CountlessRefusals", {DROPPED % "a": "0+90x14 1260x40"}, quiet=(16, 18, 19, 20, 30)),  # it ends in time
    Case(
        "CountlessTombstones", {f"countless_tombstone_share{{{COORDINATOR}}}": "0.8x20 0.81x40"}, (35,), (36,), INSTANCE
    ),
    Case("CountlessLabels", {f"countless_label_share{{{COORDINATOR}}}": "0.7x20 0.71x40"}, (35,), (36,), INSTANCE),
    Case("CountlessOutOfFiles", open_files(COORDINATOR, 91), quiet=(4,), firing=(5,), labels=INSTANCE),
    Case("CountlessOutOfFiles", open_files(COORDINATOR, 90), quiet=(5, 29)),
    Case("CountlessOutOfFiles", open_files(OTHER, 99), quiet=(5, 29)),
    Case("CountlessBudgetLeaks", leaked(101), (29,), (30,), {"budget": "acme", **INSTANCE}),
    Case("CountlessBudgetLeaks", leaked(100), quiet=(30, 59)),
]


def expected(case: Case) -> dict[str, Any]:
    """The alert that Prometheus sends: promtool compares its labels and all its text."""
    rule = ALERTS[case.alert]
    texts = {
        name: re.sub(r"{{ \$labels\.(\w+) }}", lambda label: case.labels[label[1]], text).replace(
            "{{ $value }}", case.value
        )
        for name, text in rule["annotations"].items()
    }
    return {"exp_labels": rule["labels"] | case.labels, "exp_annotations": texts}


def promtool_test(case: Case) -> dict[str, Any]:
    none: list[dict[str, Any]] = []
    times = [(minute, none) for minute in case.quiet] + [(minute, [expected(case)]) for minute in case.firing]
    return {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in case.samples.items()],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": case.alert, "exp_alerts": alerts} for minute, alerts in times
        ],
    }


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    assert {case.alert for case in CASES if case.firing} == set(ALERTS)
    assert {case.alert for case in CASES if case.quiet} == set(ALERTS)


@pytest.mark.soak
def test_alerts_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    """With promtool of Prometheus, which requirements/system.sh installs."""
    file = tmp_path / "cases.yaml"
    tests = [promtool_test(case) for case in CASES]
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    for what, path in (("check", RULES), ("test", file)):
        result = run(["promtool", what, "rules", str(path)], stdout=PIPE, stderr=STDOUT, text=True, check=False)  # noqa: S607
        assert result.returncode == 0, result.stdout
