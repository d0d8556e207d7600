"""The settings of the coordinator, with the reasons that stand beside them in the source."""

import inspect
from dataclasses import fields

from countless.server.settings import Settings

HEAD = """# Configuration

*Written by `python -m tools.reference` from `server/settings.py`.*

A setting comes from its flag, where `countless serve` has one (`--port 2686`), else from the environment
(`COUNTLESS_SILENT_AFTER=5s`), else from the TOML file of `--config FILE` (`silent_after = "5s"`), else it is the
default. Durations are written `500ms`, `10s`, `5m`, `2h`, `30d`. `countless validate FILE` checks a file.

## The coordinator

| setting | default | why |
|---|---|---|
"""
TAIL = """
## The client

| variable | meaning |
|---|---|
| `COUNTLESS_URL` | where the coordinator is; default `http://127.0.0.1:2686` |
| `COUNTLESS_TOKEN`, `COUNTLESS_TOKEN_FILE` | the bearer token, or a file that holds it |
| `COUNTLESS_SITE` | the site's name; default: the host's name |
| `COUNTLESS_CLIENT_STATE_DIR` | where counts are kept so that `kill -9` loses none; not with a broker |
| `COUNTLESS_NATS_CREDS` | a credentials file for `nats://` and `tls://` |
| `COUNTLESS_CA` | a PEM file with an authority of your own |
| `COUNTLESS_CERT` | a PEM file with the client's certificate and key, for mTLS |
| `COUNTLESS_DISABLE` | `1` makes the client a no-op: for tests |
"""


def page() -> str:
    """One row for each field, in the order of the source."""
    reasons = {name: reason for line in inspect.getsource(Settings).splitlines() for name, reason in [_reason(line)]}
    rows = []
    for field in fields(Settings):
        default = field.default if field.default != "" else "none"
        rows.append(f"| `{field.name}` | `{default}` | {reasons.get(field.name, '')} |")
    return HEAD + "\n".join(rows) + "\n" + TAIL


def _reason(line: str) -> tuple[str, str]:
    code, _, reason = line.partition("  # ")
    return code.strip().partition(":")[0], reason.strip()
