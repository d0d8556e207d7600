"""The settings of the coordinator, with the comments of `server/settings.py`."""

import inspect
from dataclasses import fields

from countless.server.settings import Settings

HEAD = """# Configuration

*Written by `python -m tools.reference` from `server/settings.py`.*

| source, the first that has the setting | example |
|---|---|
| flag, if `countless serve` has one | `--port 2686` |
| environment | `COUNTLESS_SILENT_AFTER=5s` |
| TOML file of `--config FILE` | `silent_after = "5s"` |
| default | |

Durations are written `500ms`, `10s`, `5m`, `2h`, `30d`. `countless validate FILE` checks a file and
prints the resulting settings.

## The coordinator

| setting | default | meaning, or reason for the limit |
|---|---|---|
"""
TAIL = """
## The client

| variable | meaning |
|---|---|
| `COUNTLESS_URL` | address of the coordinator or broker; default `http://127.0.0.1:2686` |
| `COUNTLESS_TOKEN`, `COUNTLESS_TOKEN_FILE` | the bearer token, or a file that holds it, read for each connection |
| `COUNTLESS_STATE_DIR` | where a coordinator on this machine has the operator's token |
| `COUNTLESS_SITE` | the site's name; default: the host's name |
| `COUNTLESS_CLIENT_STATE_DIR` | a directory for counts, so that `kill -9` loses none; not with a broker |
| `COUNTLESS_NATS_CREDS` | a credentials file for `nats://` and `tls://` |
| `COUNTLESS_CA` | a PEM file with a certificate authority of your own |
| `COUNTLESS_CERT` | a PEM file with the client's certificate and key, for mTLS |
| `COUNTLESS_DISABLE` | `1`: the client sends and stores nothing; for tests |
"""


def page() -> str:
    reasons = {name: reason for line in inspect.getsource(Settings).splitlines() for name, reason in [_reason(line)]}
    rows = []
    for field in fields(Settings):
        default = field.default if field.default != "" else "none"
        rows.append(f"| `{field.name}` | `{default}` | {reasons.get(field.name, '')} |")
    return HEAD + "\n".join(rows) + "\n" + TAIL


def _reason(line: str) -> tuple[str, str]:
    code, _, reason = line.partition("  # ")
    return code.strip().partition(":")[0], reason.strip()
