"""`countless doctor` reports every check, with a remedy for each problem."""

import json
import os
import shutil
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from countless.server.settings import STATE_FILE
from support.commands import run_command
from support.service import Server, environment

pytestmark = pytest.mark.slow


def doctor(*arguments: str, **variables: str) -> tuple[int, dict[str, dict[str, Any]]]:
    result = run_command("doctor", "--json", *arguments, **variables)
    assert result.returncode in (0, 1), result.stderr
    return result.returncode, {finding["what"]: finding for finding in json.loads(result.stdout)}


def config(folder: Path, **settings: object) -> str:
    path = folder / "countless.toml"
    settings = {"state_dir": str(folder / "state"), "max_connections": 100, **settings}
    path.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in settings.items()))
    return str(path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def certificate(folder: Path, days: int) -> dict[str, str]:
    pair = trustme.CA().issue_cert("localhost", not_after=datetime.now(UTC) + timedelta(days=days))
    pair.private_key_pem.write_to_path(str(folder / "key.pem"))
    pair.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    return {"tls_cert": str(folder / "cert.pem"), "tls_key": str(folder / "key.pem")}


def test_doctor_accepts_a_machine_that_can_run_a_coordinator(tmp_path: Path) -> None:
    settings = config(tmp_path, port=free_port(), **certificate(tmp_path, days=30))
    code, findings = doctor("--config", settings)
    assert code == 0, findings
    assert "valid until" in findings["tls"]["found"]
    assert not (tmp_path / "state").exists()  # checking creates nothing


def test_doctor_names_each_problem_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        wrong = {"port": taken.getsockname()[1], "state_dir": str(tmp_path / "file" / "state")}
        code, findings = doctor("--config", config(tmp_path, **wrong, **certificate(tmp_path, days=-1)))
    assert code == 1
    for what in ("port", "state", "tls"):
        assert not findings[what]["well"], what
        assert findings[what]["remedy"]
    assert "expired" in findings["tls"]["found"]


def test_doctor_warns_of_what_works_up_to_a_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (1024, 20_000))
    kind, free = type(shutil.disk_usage("/")), 50_000_000
    monkeypatch.setattr("shutil.disk_usage", lambda path: kind(10**9, 0, free))
    settings = config(tmp_path, port=free_port(), max_connections=20_000)
    code, findings = doctor("--config", settings)
    assert code == 0
    for what in ("open files", "disk"):
        assert (findings[what]["well"], findings[what]["warns"], bool(findings[what]["remedy"])) == (True,) * 3
    shown = run_command("doctor", "--config", settings).stdout
    assert "WARN open files    at most 20,000\n" in shown
    assert "raise it to 20,100" in shown
    free = 900_000
    code, findings = doctor("--config", settings)
    assert (code, findings["disk"]["well"]) == (1, False)


def test_doctor_checks_the_way_to_a_coordinator(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        code, findings = doctor("--url", server.url)
        assert code == 0
        assert findings["allowed"]["found"] == "to count, to read, to operate"
        server.stop()
        code, findings = doctor(COUNTLESS_URL=server.url)
        assert code == 1
        assert "countless serve" in findings["coordinator"]["remedy"]


def test_doctor_reports_what_a_token_allows(tmp_path: Path) -> None:
    with Server(tmp_path, closed=True) as server:
        command = [sys.executable, "-m", "countless.cli.main", "token", "create", "site", "--state-dir", str(tmp_path)]
        made = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
        _, findings = doctor("--url", server.url, COUNTLESS_TOKEN=made.stdout.split()[-1])
        assert findings["allowed"]["found"] == "to count"
        code, findings = doctor("--url", server.url)
        assert code == 1
        assert findings["allowed"]["found"] == "nothing"


def test_doctor_checks_the_state_directory_that_is_named_also_where_a_url_is_set(tmp_path: Path) -> None:
    """COUNTLESS_URL is often set for all commands."""
    (tmp_path / STATE_FILE).write_bytes(b"damaged" * 2000)
    result = run_command("doctor", "--state-dir", str(tmp_path), COUNTLESS_URL="http://127.0.0.1:1")
    assert result.returncode == 1
    assert "NOT  state " in result.stdout
    assert "127.0.0.1:1 " not in result.stdout


@pytest.mark.parametrize(
    ("change", "found"),
    [({"f_flag": os.ST_RDONLY}, "is read-only"), ({"f_files": 5, "f_favail": 0}, "0 more files can be made")],
)
def test_doctor_finds_a_disk_that_has_room_and_takes_no_files(
    change: dict[str, int], found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = {"f_flag": 0, "f_files": 0, "f_favail": 0, **change}
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**status))
    code, findings = doctor("--config", config(tmp_path))
    assert (code, found in findings["disk"]["found"], findings["disk"]["well"]) == (1, True, False)
