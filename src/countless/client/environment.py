"""What is not given in a call comes from the environment."""

import os
from pathlib import Path

DEFAULT_URL = "http://127.0.0.1:2686"


def url_or_default(url: str | None) -> str:
    return url or os.environ.get("COUNTLESS_URL") or DEFAULT_URL


def token_or_default(token: str | None) -> str | None:
    """`COUNTLESS_TOKEN`, or what is in the file `COUNTLESS_TOKEN_FILE`."""
    file = os.environ.get("COUNTLESS_TOKEN_FILE")
    if token is not None:
        return token
    return os.environ.get("COUNTLESS_TOKEN") or (Path(file).read_text(encoding="utf-8").strip() if file else None)
