"""`make bench`: every number the docs quote, measured side by side in one run. Read the ratios, not the seconds.

python -m bench              everything
python -m bench plans auto   some sections
"""

import sys

from bench import auto, hot_path, plans

SECTIONS = {"hot-path": hot_path.main, "plans": plans.main, "auto": auto.main}


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        sys.exit(f"bench: no section {unknown[0]!r}; there are: {', '.join(SECTIONS)}")
    for name in names or SECTIONS:
        print(f"\n== {name}")
        SECTIONS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
