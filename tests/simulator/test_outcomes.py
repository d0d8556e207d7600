"""The record of what many seeds did: written, read, and compared."""

from pathlib import Path

import pytest

from simulator import outcomes, reader
from simulator.runs import Run
from simulator.trial import Trial

RECORD = Path(__file__).with_name("outcomes.txt")


def test_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    digests = {seed: f"{seed:08x}" for seed in range(950, 1203)} | {1000: outcomes.FAILED}
    outcomes.write(tmp_path / "record", digests)
    assert outcomes.read(tmp_path / "record") == digests
    assert outcomes.consecutive(digests) == range(950, 1203)
    assert len((tmp_path / "record").read_text().splitlines()) == 3


def test_seeds_with_another_digest_are_named() -> None:
    before = {0: "aaaaaaaa", 1: "bbbbbbbb", 2: "cccccccc"}
    assert outcomes.differing(before, {1: "bbbbbbbb", 2: outcomes.FAILED, 7: "dddddddd"}) == [2]


def test_digest_covers_what_a_reader_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(range(1), "counters", "memory")
    before = run.outcomes().digests
    monkeypatch.setattr(reader, "_shown", lambda answer: (answer.estimate,))
    assert run.outcomes().digests != before


@pytest.mark.parametrize("store", ["memory", "cluster"])
def test_digest_covers_messages(store: str) -> None:
    """Two seeds with other traffic; one with the same."""
    trial = Trial.drawn(1, "counters", store)
    assert trial.run().digest == trial.run().digest
    assert trial.run().digest != trial._replace(seed=2).run().digest


def test_record_of_the_repository_has_consecutive_seeds() -> None:
    digests = outcomes.read(RECORD)
    assert [*digests] == [*outcomes.consecutive(digests)]
    assert outcomes.FAILED not in digests.values()
