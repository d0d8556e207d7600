"""Partial differential privacy, usable on its own: design/privacy/library.md."""

from countless.privacy.audit import AuditResult, audit
from countless.privacy.binary_mechanism import BinaryMechanism
from countless.privacy.finite import (
    Adversary,
    FiniteMechanism,
    Mechanism,
    Verified,
    asking,
    sampled,
    transcript_law,
    verify,
)
from countless.privacy.guarantee import NOTHING_LEAKS, LeakMap, PartialDPGuarantee, PostprocessedGuarantee
from countless.privacy.noise import Noise, OpenDPNoise, RandomSourceNoise, noise_from
from countless.privacy.pure import posterior_shift, posterior_tight, transfer_exponential, transfer_tight
from countless.privacy.sparse_vector import SparseVector
from countless.privacy.theorems import (
    Accuracy,
    GeneralisationBound,
    Sample,
    posterior_linear,
    posterior_low_sensitivity,
    posterior_pure,
    resampling,
    transfer_linear,
    transfer_low_sensitivity,
    transfer_pure,
)
from countless.privacy.thresholds import PhasedCounter, PhasedShape, PrivateThreshold

__all__ = [
    "NOTHING_LEAKS",
    "Accuracy",
    "Adversary",
    "AuditResult",
    "BinaryMechanism",
    "FiniteMechanism",
    "GeneralisationBound",
    "LeakMap",
    "Mechanism",
    "Noise",
    "OpenDPNoise",
    "PartialDPGuarantee",
    "PhasedCounter",
    "PhasedShape",
    "PostprocessedGuarantee",
    "PrivateThreshold",
    "RandomSourceNoise",
    "Sample",
    "SparseVector",
    "Verified",
    "asking",
    "audit",
    "noise_from",
    "posterior_linear",
    "posterior_low_sensitivity",
    "posterior_pure",
    "posterior_shift",
    "posterior_tight",
    "resampling",
    "sampled",
    "transcript_law",
    "transfer_exponential",
    "transfer_linear",
    "transfer_low_sensitivity",
    "transfer_pure",
    "transfer_tight",
    "verify",
]
