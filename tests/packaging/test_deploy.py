"""Files for other machines are read as far as can be here: they name what exists, and keep the house rules."""

import json
import re
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

import countless
from countless.core.budget.rule import KINDS, ON_LOSS, ON_UNREACHABLE
from countless.core.calendar import PERIODS
from countless.probe import local_url
from countless.server.http.monitoring import PROBES
from countless.server.settings import PORT, Settings, load_settings
from countless.token_file import SERVICE_RUNTIME_DIR, SERVICE_STATE_DIR
from support.commands import command_of

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
COMPOSE_TLS: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.tls.yaml").read_text())
UNITS = sorted((ROOT / "deploy").glob("*.service"))
CHART = ROOT / "deploy/helm/countless"
KUBERNETES: dict[str, dict[str, Any]] = {
    each["kind"]: each for each in yaml.safe_load_all((ROOT / "deploy/kubernetes/countless.yaml").read_text())
}


def command_exists(words: list[str]) -> bool:
    """The command and its options are there."""
    known = {option for parameter in command_of(words).params for option in parameter.opts}
    return all(word in known for word in words[1:] if word.startswith("--"))


def test_dockerfile_copies_files_that_exist() -> None:
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source


def test_container_has_few_rights() -> None:
    stages = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    (tested,) = re.findall(r"Tested with CPython (3\.\d+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert set(stages) == {f"python:{tested}-slim"}
    last = DOCKERFILE[DOCKERFILE.rindex("\nFROM") :]
    assert re.search(r"^USER (?!root)\w+$", last, re.MULTILINE)
    assert f"EXPOSE {PORT}" in last
    assert re.search(r'^HEALTHCHECK .* CMD \["countless", "health"\]$', last, re.MULTILINE)
    assert "--require-hashes" in DOCKERFILE
    (command,) = re.findall(r'^CMD \["countless", (.*)\]$', last, re.MULTILINE)
    assert command_exists([word.strip(' "') for word in command.split(",")])


def test_variables_of_the_container_are_settings() -> None:
    for name in re.findall(r"COUNTLESS_(\w+)=", DOCKERFILE):
        assert name.lower() in Settings.__dataclass_fields__


def test_compose_builds_the_dockerfile_and_publishes_on_loopback_only() -> None:
    service = COMPOSE["services"]["coordinator"]
    assert (ROOT / "deploy" / service["build"]["context"] / service["build"]["dockerfile"]).resolve().exists()
    assert service["ports"] == [f"${{COUNTLESS_PUBLISH:-127.0.0.1}}:{PORT}:{PORT}"]
    volume, _, place = service["volumes"][0].partition(":")
    assert volume in COMPOSE["volumes"]
    assert f"VOLUME {place}\n" in DOCKERFILE


def test_compose_with_tls_has_settings_that_require_it() -> None:
    service = COMPOSE_TLS["services"]["coordinator"]
    variables = dict(re.findall(r"(COUNTLESS_\w+)=(\S+)", DOCKERFILE)) | service["environment"]
    settings = load_settings({}, variables)
    settings.require_safe()
    assert (settings.allow_plaintext, settings.is_loopback) == (False, False)
    (mount,) = service["volumes"]
    folder = mount.split(":")[1]
    assert all(path.startswith(f"{folder}/") for path in (settings.tls_cert, settings.tls_key))
    assert (variables["COUNTLESS_URL"], variables["COUNTLESS_CA"]) == (local_url(settings), settings.tls_cert)


def test_kubernetes_manifests_fit_the_settings_and_each_other() -> None:
    assert set(KUBERNETES) == {"Service", "StatefulSet", "NetworkPolicy"}
    service, workload = KUBERNETES["Service"]["spec"], KUBERNETES["StatefulSet"]["spec"]
    pod = workload["template"]["spec"]
    (container,) = pod["containers"]
    labels = workload["template"]["metadata"]["labels"]
    policy = KUBERNETES["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]
    assert service["selector"] == workload["selector"]["matchLabels"] == policy == labels
    assert workload["serviceName"] == KUBERNETES["Service"]["metadata"]["name"]
    assert workload["replicas"] == 1  # two coordinators must not share a state
    program, *words = container["args"]
    assert program == "countless"
    assert command_exists(words)
    variables = {each["name"]: each["value"] for each in container["env"]}
    options = {"COUNTLESS_LOG_FORMAT"}
    names = {name.removeprefix("COUNTLESS_").lower() for name in set(variables) - options}
    assert names <= set(Settings.__dataclass_fields__)
    settings = load_settings({}, variables)
    settings.require_safe()
    (port,) = container["ports"]
    assert (settings.port, settings.port) == (port["containerPort"], service["ports"][0]["port"])
    assert service["ports"][0]["targetPort"] == port["name"]
    (claim,) = workload["volumeClaimTemplates"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts[claim["metadata"]["name"]] == settings.state_dir
    assert set(mounts) == {claim["metadata"]["name"], *(volume["name"] for volume in pod["volumes"])}


def test_chart_takes_the_settings_of_the_manifest_and_the_options_of_the_command() -> None:
    """`make integrations` renders it with Helm and compares it with the manifest."""
    variables = {each["name"]: each["value"] for each in workload_container()["env"]}
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert values["env"] == variables
    assert values.keys() == schema["properties"].keys() - {"global"}
    rule = schema["properties"]["rules"]["items"]["properties"]
    options = {parameter.name for parameter in command_of(["budget", "create"]).params}
    assert rule.keys() == options - {"url", "token", "as_json", "help"}
    allowed = {name: each["enum"] for name, each in rule.items() if "enum" in each}
    assert allowed == {
        "per": [*PERIODS], "kind": [*KINDS], "on_loss": [*ON_LOSS], "on_unreachable": [*ON_UNREACHABLE],
    }  # fmt: skip
    template = (CHART / "templates/rules.yaml").read_text()
    assert all(f'"{name}"' in template for name in rule.keys() - {"name"})
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (countless.__version__, countless.__version__)


def workload_container() -> dict[str, Any]:
    found: dict[str, Any] = KUBERNETES["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    return found


def test_kubernetes_job_restores_into_the_volume_of_the_coordinator() -> None:
    job = yaml.safe_load((ROOT / "deploy/kubernetes/restore.yaml").read_text())["spec"]["template"]["spec"]
    workload = KUBERNETES["StatefulSet"]
    pod, (claim,) = workload["spec"]["template"]["spec"], workload["spec"]["volumeClaimTemplates"]
    (container,), (waiting,), (volume,) = job["containers"], job["initContainers"], job["volumes"]
    program, *words = container["args"]
    assert (program, command_exists(words)) == ("countless", True)
    first = f"{claim['metadata']['name']}-{workload['metadata']['name']}-0"  # as Kubernetes names it
    assert volume["persistentVolumeClaim"]["claimName"] == first
    (mount,) = container["volumeMounts"]
    (variable,) = container["env"]
    settings = load_settings({}, {variable["name"]: variable["value"]})
    assert mount["mountPath"] == settings.state_dir
    assert words[-1].startswith(settings.state_dir)
    assert (job["securityContext"], container["image"]) == (pod["securityContext"], pod["containers"][0]["image"])
    assert container["securityContext"] == waiting["securityContext"] == pod["containers"][0]["securityContext"]
    labels = yaml.safe_load((ROOT / "deploy/kubernetes/restore.yaml").read_text())["spec"]["template"]["metadata"]
    assert labels["labels"] != KUBERNETES["Service"]["spec"]["selector"]  # it must not get the traffic


def test_kubernetes_pod_has_probes_and_few_rights() -> None:
    pod = KUBERNETES["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    known = {operation.path for operation in PROBES}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in known
        assert container[probe]["httpGet"]["port"] == container["ports"][0]["name"]
    assert f"--uid {pod['securityContext']['runAsUser']} " in DOCKERFILE
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsUser"]
    rights = container["securityContext"]
    assert rights["readOnlyRootFilesystem"]
    assert not rights["allowPrivilegeEscalation"]
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert pod["terminationGracePeriodSeconds"] > 15  # as the unit and compose allow
    assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_units_are_hardened_and_start_what_exists(path: Path) -> None:
    unit = ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(path)
    assert set(unit) == {"DEFAULT", "Unit", "Service", "Install"}
    service = unit["Service"]
    program, *words = service["ExecStart"].split()
    assert program.endswith("/countless")
    assert command_exists(words)
    for name in (
        "DynamicUser",
        "NoNewPrivileges",
        "PrivateTmp",
        "ProtectHome",
        "RestrictNamespaces",
        "LockPersonality",
    ):
        assert service[name] == "yes"
    assert service["SystemCallFilter"] == "@system-service"
    assert service["ProtectSystem"] == "strict"
    assert service["Type"] == "notify"
    if path.stem == "countless":
        assert Path("/run") / service["RuntimeDirectory"] == SERVICE_RUNTIME_DIR  # shows commands the user of the unit
        assert Path("/var/lib") / service["StateDirectory"] == Path(SERVICE_STATE_DIR)
        assert service["ExecReload"].endswith("kill -HUP $MAINPID")
        assert int(service["WatchdogSec"]) > 10
        for name in ("StateDirectory", "RuntimeDirectory", "LimitNOFILE", "UMask"):
            assert service[name]
    of_clients = {"token_file", "client_state_dir"}  # the agent is one
    for name in re.findall(r"COUNTLESS_(\w+)=", path.read_text()):
        assert name.lower() in of_clients | set(Settings.__dataclass_fields__)
