"""Audits of `partial_dp` by the stated law of a mechanism: exhaustive on small cases, random on large ones.

They hold for the code only if the law is the code's, which `exact_audit.audit_law` checks. They compare likelihoods of
single transcripts, so the claim must be pure (delta = 0). `exact_audit` and `empirical_audit` trust no stated law.
"""

from collections.abc import Hashable, Iterable, Iterator
from itertools import combinations_with_replacement, product

from countless.core.random_source import RandomSource
from countless.errors import InvalidParameter
from countless.privacy.noise import RandomSourceNoise
from countless_lab.audit.finding import AuditFinding, MaxRatio
from countless_lab.audit.inputs import INPUTS, run_round
from countless_lab.audit.mechanisms import Mechanism
from countless_lab.audit.transcripts import Block, LikelihoodRatios, NoiseLaw, Transcript


def event_orders(length: int) -> Iterator[tuple[int, ...]]:
    """All ways to deal `length` events to sites, up to renaming them (sites are exchangeable).

    >>> list(event_orders(2))
    [(0, 0), (0, 1)]
    """

    def extend(prefix: tuple[int, ...], used: int) -> Iterator[tuple[int, ...]]:
        if len(prefix) == length:
            yield prefix
            return
        for site in range(used + 1):
            yield from extend((*prefix, site), max(used, site + 1))

    yield from extend((), 0)


def audit_exhaustively(mechanism: Mechanism, events: int = 5, step: int = 2) -> AuditFinding:
    """Every event order, threshold vector, pattern of endings and neighbour, with the worst released sums.

    The likelihood ratio depends on a released sum only through the sign of each node's noise, so "all sums"
    is the maximum over signs. The mechanism must state its law.
    """
    law, worst = _law(mechanism), MaxRatio()
    for order in event_orders(events):
        for thresholds in _threshold_vectors(order, step):
            for transcript in _ending_patterns(mechanism, order, thresholds, step):
                ratios = LikelihoodRatios(law, transcript, thresholds)
                if ratios.possible():
                    leaked = _leaked(mechanism, transcript, worst)
                    blocks = [block for block in ratios.places if block not in leaked]
                    _add_neighbours(ratios, blocks, f"phases ended at events {transcript.endings}", worst)
    power = (
        f"every transcript of {events} events with blocks of {step} was covered: any violation among them, "
        "of any size, would have been seen with certainty; longer ones were not tried"
    )
    return worst.finding("exhaustive", mechanism, "likelihood ratios", power)


def _threshold_vectors(order: tuple[int, ...], step: int) -> Iterator[dict[Block, int]]:
    blocks = [(site, block) for site in sorted(set(order)) for block in range(1, (order.count(site) - 1) // step + 2)]
    for places in product(range(1, step + 1), repeat=len(blocks)):
        yield dict(zip(blocks, places, strict=True))


def _ending_patterns(
    mechanism: Mechanism, order: tuple[int, ...], thresholds: dict[Block, int], step: int
) -> Iterator[Transcript]:
    """All patterns: phases end at some of the crossings, and empty phases follow any ending or come first."""
    crossings = []
    seen: dict[int, int] = {}
    for event, site in enumerate(order, start=1):
        seen[site] = seen.get(site, 0) + 1
        block, place = (seen[site] - 1) // step + 1, (seen[site] - 1) % step + 1
        if thresholds[site, block] == place:
            crossings.append(event)
    phases = mechanism.shape.phases
    for size in range(phases + 1):
        for endings in combinations_with_replacement((0, *crossings), size):
            # The sums are immaterial: `worst_nodes` maximises over them. The last phase releases none.
            yield Transcript(step, order, endings, (0,) * min(size, phases - 1))


def _law(mechanism: Mechanism) -> NoiseLaw:
    if mechanism.law is None:
        raise InvalidParameter("mechanism", mechanism.name, "one that states the law of its noise")
    if not mechanism.claim.pure:
        raise InvalidParameter("delta", mechanism.claim.delta, "0: likelihoods of single transcripts say nothing else")
    return mechanism.law


def _leaked(mechanism: Mechanism, transcript: Transcript, worst: MaxRatio) -> frozenset[Hashable]:
    leaked = mechanism.claim.leak_map(transcript)
    if len(leaked) > mechanism.claim.kappa:
        worst.too_many_leaks(len(leaked), mechanism.claim.kappa)
    return leaked


def _add_neighbours(ratios: LikelihoodRatios, blocks: Iterable[Block], name: str, worst: MaxRatio) -> None:
    for block in blocks:
        for other in _neighbours(ratios, block):
            ratio = ratios.log_ratio(block, other, worst_nodes=True)
            worst.add(ratio, f"block {block} moved to {other}, {name}")


def _neighbours(ratios: LikelihoodRatios, block: Block) -> Iterable[int]:
    """The other thresholds to try: the first place of each phase that the block spans, and "not yet".

    Two thresholds whose crossings fall into the same phase have the same likelihood, so these are all cases.
    """
    events, step = ratios.places[block], ratios.transcript.step
    tried: dict[int, int] = {}
    for place, event in enumerate(events, start=1):
        tried.setdefault(ratios.phase_of(event), place)
    others = list(tried.values())
    if len(events) < step:
        others.append(len(events) + 1)
    return others


def audit_randomly(
    mechanism: Mechanism, sites: int, step: int, transcripts: int, rng: RandomSource, blocks_each: int = 200
) -> AuditFinding:
    """Run rounds of the mechanism under several inputs; check every kind of neighbour of many blocks.

    The ratios are exact by the mechanism's stated law and maximal over all released sums; only the transcripts are
    random.
    """
    law, worst = _law(mechanism), MaxRatio()
    for number in range(transcripts):
        own = rng.spawn("transcript", number)
        counter = mechanism.build(RandomSourceNoise(own.spawn("noise")))
        source = INPUTS[number % len(INPUTS)](sites, mechanism.shape.phases, step, own.spawn("feeder"))
        transcript, thresholds = run_round(counter, source, step, mechanism.shape.phases, own.spawn("thresholds"))
        ratios = LikelihoodRatios(law, transcript, thresholds)
        leaked = _leaked(mechanism, transcript, worst)
        blocks = _sample_blocks(ratios, leaked, blocks_each, own.spawn("blocks"))
        _add_neighbours(ratios, blocks, f"transcript {number}", worst)
    share = 1 - 0.05 ** (1 / transcripts)
    power = (
        f"if at least {share:.1%} of transcripts drawn so held a violation among the blocks tried, "
        "one would have been seen with probability 95 %"
    )
    return worst.finding("random", mechanism, "likelihood ratios", power)


def _sample_blocks(ratios: LikelihoodRatios, leaked: frozenset[Hashable], limit: int, rng: RandomSource) -> list[Block]:
    """Blocks at which a phase ended but which the claim does not leak, then those that span most phases."""
    endings = {ratios.transcript.block_at(event) for event in ratios.transcript.endings if event > 0}
    blocks = [block for block in ratios.places if block not in leaked]

    def spread(block: Block) -> int:
        events = ratios.places[block]
        return ratios.phase_of(events[-1]) - ratios.phase_of(events[0])

    keyed = sorted(blocks, key=lambda block: (block not in endings, -spread(block), rng.randbelow(1 << 30)))
    return keyed[:limit]
