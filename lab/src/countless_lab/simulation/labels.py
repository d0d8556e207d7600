"""Streams of labelled events that do not react to the answers."""

from collections.abc import Iterator

import numpy as np


def zipf_labels(sites: int, labels: int, events: int, seed: int) -> Iterator[tuple[int, str]]:
    """Events at random sites: the label of rank r has a share proportional to 1/r. Pairs of site and label."""
    rng = np.random.default_rng(seed)
    shares = np.cumsum(1 / np.arange(1, labels + 1))
    names = [f"label-{rank}" for rank in range(1, labels + 1)]
    ranks = np.searchsorted(shares / shares[-1], rng.random(events))
    return zip(rng.integers(0, sites, events).tolist(), (names[rank] for rank in ranks.tolist()), strict=True)
