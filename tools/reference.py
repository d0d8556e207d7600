"""Writes the reference pages that are generated from the code, and pictures: an attack, the states of an answer.

python -m tools.reference            # write them
python -m tools.reference --check    # exit 1 if one is out of date (a test runs this)
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tools import attack, commands, errors, http_api, metrics, privacy_api, python_api, settings, states

ROOT = Path(__file__).parents[1]
PAGES: dict[str, Callable[[], str]] = {
    **{f"docs/reference/python/{name}.md": partial(python_api.page, name) for name in python_api.PAGES},
    "design/privacy/names.md": privacy_api.page,
    "docs/reference/http.md": http_api.page,
    "docs/reference/cli.md": commands.page,
    "docs/reference/configuration.md": settings.page,
    "docs/reference/metrics.md": metrics.page,
    "docs/reference/errors.md": errors.page,
    "docs/images/states.svg": states.picture,
    "docs/images/attack.svg": attack.picture,
}


def main() -> int:
    stale = []
    for name, make in PAGES.items():
        path, text = ROOT / name, make()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
    print("\n".join(stale) or "every page is up to date")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
