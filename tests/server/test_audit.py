"""The audit log: every change and every refusal, by whom and when; never a token, never more than the disk can hold."""

import json
import os
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from countless.server import audit
from countless.server.app import build_app
from countless.server.audit import MAX_REFUSALS, REFUSED_FILE, REPEAT_S, AuditLog
from countless.server.settings import STATE_FILE, Settings
from countless.server.storage.backup import AUDIT_FILE
from support.commands import run_command


def entries(directory: Path, file: str = AUDIT_FILE) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / file).read_text().splitlines()]


def test_changes_and_refusals_over_http_are_recorded_without_tokens(tmp_path: Path) -> None:
    made = run_command("token", "create", "operator", "--label", "me", "--state-dir", str(tmp_path))
    token = made.stdout.strip()
    app = build_app(Settings(state_dir=str(tmp_path)))
    with TestClient(app, base_url="http://127.0.0.1:2686", client=("192.0.2.7", 5000)) as client:
        headers = {"authorization": f"Bearer {token}"}
        assert client.post("/api/v1/counters", json={"name": "hits"}, headers=headers).status_code == 201
        assert client.delete("/api/v1/counters/hits", headers=headers).status_code == 204
        assert client.delete("/api/v1/counters/hits", headers=headers).status_code == 404  # nothing changed
        assert client.get("/api/v1/counters", headers=headers).status_code == 200
        for _ in range(3):
            assert client.get("/api/v1/sites").status_code == 401
        assert client.delete("/api/v1/counters/hits", headers={"authorization": "Bearer guess"}).status_code == 401
        assert client.delete("/api/v1/sites?silent_for=30d", headers=headers).json() == {"forgotten": 0}
    listed = run_command("token", "list", "--state-dir", str(tmp_path)).stdout
    who = f"192.0.2.7 with token {next(word for word in listed.split() if len(word) == 12)}"
    found = [(each["event"], each["who"], each.get("path", "")) for each in entries(tmp_path)]
    user, process = f"{audit.shell_user()}", f"process {os.getpid()}"
    assert found[:2] == [("token made", user, ""), ("started", process, "")]
    assert found[2:4] == [("created", who, "/api/v1/counters"), ("deleted", who, "/api/v1/counters/hits")]
    assert found[4:] == [("deleted", who, "/api/v1/sites"), ("stopped", process, "")]
    refused = [(each["who"], each["reason"]) for each in entries(tmp_path, REFUSED_FILE)]
    assert refused == [("192.0.2.7", "GET with no token"), ("192.0.2.7", "DELETE with a token that is not known here")]
    text = (tmp_path / AUDIT_FILE).read_text() + (tmp_path / REFUSED_FILE).read_text()
    assert token not in text
    assert "guess" not in text
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("*.log")} == {0o600}


def test_refused_callers_cannot_wash_out_the_audit_log_nor_choose_what_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: new paths, tokens and forwarded addresses in every request, until entries of operators are gone."""
    monkeypatch.setattr(audit, "MAX_FILE_BYTES", 1_000)
    monkeypatch.setattr(audit, "MAX_REFUSALS", 1_000)
    app = build_app(Settings(state_dir=str(tmp_path)))
    with TestClient(app, base_url="http://127.0.0.1:2686", client=("127.0.0.1", 5000)) as client:
        for number in range(50):
            evil = {"authorization": f"Bearer evil-{number}", "x-forwarded-for": f"evil-{number}"}
            assert client.delete(f"/api/v1/counters/evil-{number}", headers=evil).status_code == 401
        for number in range(50):
            assert client.get("/api/v1/sites", headers={"x-forwarded-for": f"192.0.2.{number}"}).status_code == 401
    assert [each["event"] for each in entries(tmp_path)] == ["started", "stopped"]
    kept = entries(tmp_path, f"{REFUSED_FILE}.1") + entries(tmp_path, REFUSED_FILE)
    assert [each["who"] for each in kept] == [f"192.0.2.{number}" for number in range(50 - len(kept), 50)]
    assert not any("evil" in path.read_text() for path in tmp_path.glob("*.log*"))


def test_tokens_and_restores_of_the_command_line_are_recorded(tmp_path: Path) -> None:
    state, copy = tmp_path / "state", str(tmp_path / "copy")
    for arguments in (
        ["token", "create", "site", "--label", "fleet", "--site", "web"],
        ["backup", copy],
        ["restore", copy],
    ):
        assert run_command(*arguments, "--state-dir", str(state)).returncode == 0
    assert run_command("token", "revoke", "fleet", "--state-dir", str(state)).returncode == 0
    assert run_command("token", "revoke", "unknown", "--state-dir", str(state)).returncode == 1
    made, restored, operator, revoked = entries(state)
    assert (made["event"], made["scope"], made["label"], made["site"]) == ("token made", "site", "fleet", "web")
    assert (restored["event"], restored["copy"]) == ("state restored", copy)
    assert (Path(restored["former"]) / STATE_FILE).exists()
    assert (operator["event"], operator["scope"]) == ("token made", "operator")  # the copy has none
    assert (revoked["event"], revoked["label"]) == ("token revoked", "fleet")
    assert {each["who"] for each in (made, restored, operator, revoked)} == {audit.shell_user()}


def test_refusals_have_a_bounded_number_of_entries(tmp_path: Path) -> None:
    now = 1_000.0
    log = AuditLog(tmp_path, clock=lambda: now)
    for number in range(10_000):
        log.refused(f"192.0.2.{number % 1_000}", "no token")
    assert len(entries(tmp_path, REFUSED_FILE)) == MAX_REFUSALS
    now += REPEAT_S
    log.refused("192.0.2.1", "no token")
    again, first = entries(tmp_path, REFUSED_FILE)[MAX_REFUSALS:]
    assert (again["event"], again["times"]) == ("refused again", 10_000 - MAX_REFUSALS)
    assert (first["event"], first["who"], first["reason"]) == ("refused", "192.0.2.1", "no token")


def test_full_file_is_set_aside_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_FILE_BYTES", 500)
    logs = [AuditLog(tmp_path), AuditLog(tmp_path)]  # of two processes
    for number in range(40):
        logs[number % 2].record("changed", "me", number=number)
    kept = [json.loads(line)["number"] for line in (tmp_path / f"{AUDIT_FILE}.1").read_text().splitlines()]
    kept += [entry["number"] for entry in entries(tmp_path)]
    assert kept == list(range(kept[0], 40))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1_200


def test_entry_that_cannot_be_written_is_logged_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    AuditLog(tmp_path / "missing").record("deleted", "me")
    assert "audit log not written" in caplog.text


def test_entry_of_which_the_disk_took_a_part_does_not_spoil_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(FileIO):
        def write(self, line: Any) -> int:
            return super().write(line[:20])

    log = AuditLog(tmp_path)
    log.record("created", "me", path="/first")
    with monkeypatch.context() as patch:
        patch.setattr(audit, "FileIO", Full)
        log.record("created", "me", path="/lost")
    assert f"audit log not written: file={tmp_path / AUDIT_FILE} error=No space left on device" in caplog.text
    log.record("created", "me", path="/next")
    assert [entry["path"] for entry in entries(tmp_path)] == ["/first", "/next"]
