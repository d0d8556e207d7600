"""python -m countless_lab.tightness: how close a search comes to each bound, and the run that breaks one."""

import argparse
import sys

from countless_lab.tightness.groups import GROUPS
from countless_lab.tightness.search import ABOVE, search, shortest

parser = argparse.ArgumentParser("python -m countless_lab.tightness", description=__doc__)
parser.add_argument("groups", nargs="*", help=f"default: all of {', '.join(GROUPS)}")
parser.add_argument("--scale", type=float, default=1.0, help="multiply the usual number of runs")
parser.add_argument("--seed", type=int, default=1)
options = parser.parse_args()
broken = False
for name in options.groups or GROUPS:
    if name not in GROUPS:
        sys.exit(f"tightness: no group {name!r}; there are: {', '.join(GROUPS)}")
    group, runs = GROUPS[name]
    for each in search(group, max(1, int(options.scale * runs)), options.seed):
        mark = "BROKEN" if each.broken else ""
        print(f"{each.row.claim:7} {each.ratio:8.4f}  {each.row.bound}  run {each.number} {mark}", flush=True)
        if each.broken:
            broken = True
            print(f"    {shortest(group, each.run, each.row.name, ABOVE)}")
sys.exit(broken)
