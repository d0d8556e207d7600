"""`make bench`: every number the docs quote, measured side by side in one run. Read the ratios, not the seconds.

python -m bench              everything
python -m bench plans auto   some sections
"""

import sys

from bench import agent, auto, hot_path, load, plans, scale, scaling

SECTIONS = {
    "hot-path": hot_path.main,
    "plans": plans.main,
    "auto": auto.main,
    "agent": agent.main,
    "load": load.main,
    "scale": scale.main,
}
LONG = {
    "load-rounds": load.rounds,
    "auto-large": auto.large,
    "auto-coarse": auto.coarse,
    "auto-seeds": auto.seeds,
    "auto-possible": auto.possible,
    "scaling": scaling.main,
    "frameworks": scaling.frameworks,
}


def main(names: list[str]) -> None:
    known = SECTIONS | LONG
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"bench: no section {unknown[0]!r}; there are: {', '.join(known)}")
    for name in names or SECTIONS:
        print(f"\n== {name}", flush=True)
        known[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
