"""Every adversary beats the negative control it is meant for, and none beats `deterministic`."""

import pytest

from countless.errors import UnknownName
from countless.schemes.registry import SCHEMES
from countless_lab.arena.match import Setting, run
from countless_lab.arena.negative_controls import NEGATIVE_CONTROLS
from countless_lab.arena.registry import ADVERSARIES, ATTACKS, CONTROLS, adversary_named

pytestmark = pytest.mark.slow

# (sites, alpha, events): as small as the flaw still shows.
SIZES = {
    "aligned": (64, 0.05, 50_000),
    "thrifty": (64, 0.05, 50_000),
    "pollster": (16, 0.05, 5_000),
    "clipping": (256, 0.05, 50_000),
    "lattice": (256, 0.05, 50_000),
    "unredrawn": (256, 0.05, 50_000),
    "unmoved": (100, 0.01, 150_000),
    "fresh-noise": (256, 0.002, 100_000),
    "drifting": (16, 0.05, 100_000),
    "dithered": (256, 0.05, 20_000),
    "leaking": (256, 0.05, 20_000),
}


@pytest.mark.parametrize("name", ADVERSARIES)
def test_adversary_beats_its_negative_control(name: str) -> None:
    must_beat = ADVERSARIES[name].must_beat
    sites, alpha, events = SIZES[must_beat]
    (match,) = run([Setting(must_beat, adversary_named(name), sites, alpha, 0.05, events)], 2, seed=11)
    assert match.failures == 2


@pytest.mark.parametrize("name", ADVERSARIES)
def test_adversary_does_not_beat_deterministic(name: str) -> None:
    # Certain, not statistical: the deterministic scheme uses no random numbers.
    settings = [
        Setting("deterministic", adversary_named(name), sites, alpha, 0.05, 10_000)
        for sites, alpha in ((3, 0.01), (16, 0.15))
    ]
    for match in run(settings, 2, seed=21):
        assert match.failures == 0, match.scores


# The scheme without the flaw holds where the negative control fails, so the flaw is the reason.
# Each guarantee fails with probability at most delta = 1e-4: false alarm at most 2 * 4e-4.
@pytest.mark.parametrize(
    ("adversary", "sound", "control"),
    [
        ("round-robin", "lattice", "aligned"),
        ("uniform", "lattice", "thrifty"),
        ("single-site", "lattice", "clipping"),
        ("stop-after-jump", "dithered", "leaking"),
        ("step-chaser", "dithered", "unmoved"),
    ],
)
def test_scheme_without_the_flaw_holds(adversary: str, sound: str, control: str) -> None:
    sites, alpha, events = SIZES[control]
    for scheme, failures in ((control, 2), (sound, 0)):
        (match,) = run([Setting(scheme, adversary_named(adversary), sites, alpha, 1e-4, events)], 2, seed=31)
        assert match.failures == failures


def test_fresh_noise_holds_against_uniform_traffic() -> None:
    sites, alpha, events = SIZES["fresh-noise"]
    (match,) = run([Setting("fresh-noise", adversary_named("uniform"), sites, alpha, 0.05, events)], 1, seed=41)
    assert match.failures == 0


def test_every_adversary_documents_itself() -> None:
    for kind in CONTROLS + ATTACKS:
        assert kind.__doc__ is not None
        assert "Idea:" in kind.__doc__
        assert "Sees:" in kind.__doc__
        assert "Must beat:" in kind.__doc__
        assert kind.must_beat in NEGATIVE_CONTROLS or kind.must_beat in SCHEMES
        assert set(kind.ranges) <= set(kind.__dataclass_fields__)  # type: ignore[attr-defined]
    assert all(kind.__doc__ for kind in NEGATIVE_CONTROLS.values())


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownName, match="stop-after-jump"):
        adversary_named("unheard-of")
