"""The operator's token in the coordinator's state directory: the coordinator writes it, local commands read it."""

import os
from pathlib import Path

from countless.errors import InvalidParameter

OPERATOR_TOKEN_FILE = "operator.token"  # noqa: S105 - its name; in the state directory, mode 600
DEFAULT_STATE_DIR = "countless-state"
SERVICE_STATE_DIR = "/var/lib/countless"  # of the unit and of the container


def write_token(path: Path, token: str) -> None:
    """For the owner of the file only. A token that is there is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600, exist_ok=False)
    part.write_text(f"{token}\n", encoding="utf-8")
    part.replace(path)


def read_token(path: str | Path) -> str:
    """Raises InvalidParameter if there is none that could be sent."""
    try:
        return usable(Path(path).read_text(encoding="utf-8").strip())
    except (OSError, UnicodeError) as error:
        raise InvalidParameter("token file", str(path), f"a readable file with a token ({error})") from None


def usable(token: str) -> str:
    """Raises InvalidParameter without the token, which must not reach a log."""
    if not (token and token.isascii() and token.isprintable()):
        raise InvalidParameter("token", f"{len(token)} characters", "one line of printable ASCII")
    return token


def local_token() -> str | None:
    """Of a coordinator on this machine: from `COUNTLESS_STATE_DIR`, or else from the usual directories."""
    given = os.environ.get("COUNTLESS_STATE_DIR")
    for directory in (given,) if given else (DEFAULT_STATE_DIR, SERVICE_STATE_DIR):
        path = Path(directory) / OPERATOR_TOKEN_FILE
        if os.access(path, os.R_OK):
            return read_token(path)
    return None
