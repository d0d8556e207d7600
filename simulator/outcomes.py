"""A record of what many seeds did, so that a change which must not change any message can be compared with it.

A file has a line for every 100 seeds: the number of the first one, and the digest of each, in which `FAILED` stands for
a seed that fails. `Run.actions`, profiles and stores are the usual ones.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

FAILED = "failed.."  # as long as a digest
_SEEDS_PER_LINE = 100


def write(path: Path, digests: Mapping[int, str]) -> None:
    """Write the digests of consecutive seeds."""
    seeds = sorted(digests)
    lines = (seeds[first : first + _SEEDS_PER_LINE] for first in range(0, len(seeds), _SEEDS_PER_LINE))
    text = "".join(f"{line[0]} {' '.join(digests[seed] for seed in line)}\n" for line in lines)
    path.write_text(text, encoding="ascii")


def read(path: Path) -> dict[int, str]:
    digests: dict[int, str] = {}
    for line in path.read_text(encoding="ascii").splitlines():
        first, *of_seeds = line.split()
        digests.update(enumerate(of_seeds, int(first)))
    return digests


def differing(before: Mapping[int, str], after: Mapping[int, str]) -> list[int]:
    """Seeds that are in both, and have another digest."""
    return sorted(seed for seed, digest in after.items() if before.get(seed, digest) != digest)


def consecutive(seeds: Iterable[int]) -> range:
    """All seeds of a record, which has no gaps."""
    known = sorted(seeds)
    return range(known[0], known[-1] + 1)
