"""The Helm chart, rendered by Helm."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import countless
from real_libraries.envoys import PYTHON
from support.service import TIMEOUT_S, Server, environment

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/countless"
KEYS = {"name": "keys/*", "limit": 1_000_000, "per": "minute"}
TOKENS = {
    "name": "acme/tokens", "limit": "50M", "per": "month", "tz": "Europe/Berlin", "anchor": 3, "slack": "2%",
    "on_loss": "free", "on_unreachable": "wait",
}  # fmt: skip
JOBS = {"name": "jobs/*", "limit": 5, "kind": "in_flight", "max_names": 7}
WINDOW = {"name": "window", "limit": 10, "rolling": "15m"}


def rendered(values: dict[str, Any]) -> dict[str, Any]:
    """`problems`, `version`, and the objects by kind."""
    program = Path(__file__).parent / "programs/render_chart.py"
    command = [PYTHON, str(program), str(CHART)]
    result = subprocess.run(
        command, input=json.dumps(values), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert result.returncode == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    objects = [each for text in answer["manifests"] for each in yaml.safe_load_all(text) if each]
    return {**answer, **{each["kind"]: each for each in objects}}


def test_chart_without_rules_is_the_manifest() -> None:
    chart = rendered({})
    assert (chart["problems"], chart["version"]) == ([], countless.__version__)
    for expected in yaml.safe_load_all((ROOT / "deploy/kubernetes/countless.yaml").read_text()):
        found = chart[expected["kind"]]
        for each in (found, expected):
            if each["kind"] == "StatefulSet":
                each["spec"]["template"]["spec"]["containers"][0]["env"].sort(key=lambda variable: variable["name"])
        assert found == expected
    assert "ConfigMap" not in chart


def test_rules_are_applied_to_a_coordinator_and_changed(tmp_path: Path) -> None:
    (tmp_path / "countless").write_text(f'#!/bin/sh\nexec {sys.executable} -m countless.cli.main "$@"\n')
    (tmp_path / "countless").chmod(0o700)
    with Server(tmp_path / "state") as server:
        apply(tmp_path, server, [KEYS, TOKENS, JOBS, WINDOW])
        apply(tmp_path, server, [KEYS | {"limit": "2M"}, TOKENS])
        budgets = {each["name"]: each for each in server.reader.request("GET", "/api/v1/budgets")["budgets"]}
        wrong = [{"name": "wrong", "limit": 1, "tz": "Nowhere/Town", "per": "day"}, {"name": "last", "limit": 1}]
        with pytest.raises(subprocess.CalledProcessError, match="exit status 1"):
            apply(tmp_path, server, wrong)
        assert server.reader.request("GET", "/api/v1/budgets/last")["limit"] == 1  # it has gone on
    assert {name: each["limit"] for name, each in budgets.items()} == {
        "keys/*": 2_000_000, "acme/tokens": 50_000_000, "jobs/*": 5, "window": 10,
    }  # fmt: skip
    for rule in (TOKENS, JOBS, WINDOW):
        found = budgets[str(rule["name"])]
        for option in rule.keys() - {"name", "limit", "slack", "rolling"}:
            assert found[option] == rule[option], option
    assert (budgets["acme/tokens"]["slack"], budgets["window"]["rolling"]) == (0.02, 900.0)


def apply(folder: Path, server: Server, rules: list[dict[str, Any]]) -> None:
    script = rendered({"rules": rules})["ConfigMap"]["data"]["apply.sh"]
    (folder / "apply.sh").write_text(script)
    variables = environment(COUNTLESS_URL=server.url)
    variables["PATH"] = f"{folder}:{variables['PATH']}"
    subprocess.run(["/bin/sh", str(folder / "apply.sh")], env=variables, timeout=TIMEOUT_S, check=True)


def test_container_of_the_rules_fits_into_the_pod() -> None:
    chart = rendered({"rules": [KEYS], "env": {"COUNTLESS_STATE_DIR": "/state"}})
    pod = chart["StatefulSet"]["spec"]["template"]["spec"]
    coordinator, rules = pod["containers"]
    assert (rules["image"], rules["securityContext"]) == (coordinator["image"], coordinator["securityContext"])
    volumes = {volume["name"]: volume for volume in pod["volumes"]} | {"state": {}}
    mounts = {mount["name"]: mount["mountPath"] for mount in rules["volumeMounts"]}
    assert mounts.keys() <= volumes.keys()
    assert mounts["state"] == coordinator["volumeMounts"][0]["mountPath"] == "/state"
    assert volumes["rules"]["configMap"]["name"] == chart["ConfigMap"]["metadata"]["name"]
    assert f"{mounts['rules']}/{next(iter(chart['ConfigMap']['data']))}" in rules["args"][0]
    subprocess.run(["/bin/sh", "-n", "-c", rules["args"][0]], check=True)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rule": []}, "'rule' not allowed"),
        ({"rules": [{"name": "keys/*"}]}, "missing property 'limit'"),
        ({"rules": [KEYS | {"per": "week"}]}, "/rules/0/per"),
        ({"rules": [KEYS | {"name": "it's"}]}, "/rules/0/name"),
        ({"rules": [KEYS | {"name": "--url"}]}, "/rules/0/name"),
        ({"rules": [KEYS | {"limit": 0}]}, "/rules/0/limit"),
        ({"env": {"PATH": "/"}}, "'PATH'"),
    ],
)
def test_values_that_are_wrong_are_refused(values: dict[str, Any], message: str) -> None:
    assert any(message in problem for problem in rendered(values)["problems"])
