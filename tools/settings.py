"""The settings of the coordinator in groups, with the comments of `server/settings.py`."""

import inspect
from dataclasses import Field, fields
from typing import Any

from countless.server.settings import DURATIONS, Settings

HEAD = """# Configuration

This page lists every setting of the coordinator and of the client, its default, and the reason for each limit.

*Written by `python -m tools.reference`.*

| source, the first that has the setting | example |
|---|---|
| flag, if `countless serve` has one | `--port 2686` |
| environment | `COUNTLESS_SILENT_AFTER=5s` |
| TOML file of `--config FILE` | `silent_after = "5s"` |
| default | |

Durations are written `500ms`, `10s`, `5m`, `2h`, `30d`. `countless validate FILE` checks a file and
prints the resulting settings.

"""
GROUPS = {
    "Listen": ("host", "port", "open", "allow_plaintext"),
    "TLS": ("tls_cert", "tls_key", "tls_client_ca"),
    "Storage": ("state_dir", "after_restore", "restore_wait"),
    "Sites": ("silent_after", "forget_after", "remember_for"),
    "Counters without a configuration of their own": ("alpha", "delta", "scheme", "adversary", "label_cap"),
    "Limits of all together": (
        *("max_connections", "max_sites", "max_counters", "max_memberships", "max_watches"),
        *("max_tombstone_mb", "max_label_mb", "max_partial_mb"),
    ),
    "Limits of one token or site": ("max_share", "max_counters_per_site", "max_messages_per_second"),
    "Cluster": ("nats", "nats_shards", "nats_lease"),
}
UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
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
    """A table for each group; every setting is in one."""
    reasons = dict(_reason(line) for line in inspect.getsource(Settings).splitlines())
    defaults = {field.name: _default(field) for field in fields(Settings)}
    grouped = [name for names in GROUPS.values() for name in names]
    if sorted(grouped) != sorted(defaults):
        raise ValueError(f"settings without a group, or with two: {set(grouped) ^ set(defaults) or grouped}")
    tables = (
        f"## {title}\n\n| setting | default | meaning, or reason for the limit |\n|---|---|---|\n"
        + "".join(f"| `{name}` | {defaults[name]} | {reasons[name]} |\n" for name in names)
        for title, names in GROUPS.items()
    )
    return f"{HEAD}{chr(10).join(tables)}{TAIL}"


def _default(field: Field[Any]) -> str:
    """As people write it: a duration with the largest unit that divides it."""
    default: Any = field.default
    if default == "":
        return "none"
    if field.name in DURATIONS and default:
        unit, length = next((unit, length) for unit, length in UNITS.items() if default % length == 0)
        return f"`{default / length:.0f}{unit}`"
    return f"`{str(default).lower() if isinstance(default, bool) else default or 0}`"


def _reason(line: str) -> tuple[str, str]:
    code, _, reason = line.partition("  # ")
    return code.strip().partition(":")[0], reason.strip()
