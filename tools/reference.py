"""Writes the reference pages that are generated from the code, and pictures: an attack, the states of an answer.

python -m tools.reference            # write them
python -m tools.reference --check    # exit 1 if one is out of date (a test runs this)
"""

import sys
from pathlib import Path

from tools import attack, commands, errors, http_api, metrics, privacy_api, python_api, settings, states

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {
    "reference/python.md": python_api.page,
    "reference/privacy-names.md": privacy_api.page,
    "reference/http.md": http_api.page,
    "reference/cli.md": commands.page,
    "reference/configuration.md": settings.page,
    "reference/metrics.md": metrics.page,
    "reference/errors.md": errors.page,
    "images/states.svg": states.picture,
    "images/attack.svg": attack.picture,
}


def main() -> int:
    stale = []
    for name, make in PAGES.items():
        path, text = DOCS / name, make()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
    print("\n".join(stale) or "every page is up to date")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
