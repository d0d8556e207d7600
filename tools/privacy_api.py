"""The names of `countless.privacy`: signatures, docstrings, and an example of each."""

from pathlib import Path

import countless.privacy
from tools.python_layout import section

EXAMPLES = Path(__file__).parent / "privacy_examples.md"
HEAD = """# The privacy library, name by name

*Written by `python -m tools.reference` from signatures, docstrings and `tools/privacy_examples.md`.*

All of it is in `countless.privacy`. [The overview](library.md) says which name answers which question. A test runs the
examples from top to bottom in one interpreter.
"""
NOT_CONSTRUCTED = {"FiniteMechanism", "Mechanism", "Noise"}  # protocols


def page() -> str:
    """One section for each name."""
    sections = []
    for name in countless.privacy.__all__:
        thing = getattr(countless.privacy, name)
        sections.append(section(thing, name, isinstance(thing, type) and name not in NOT_CONSTRUCTED, EXAMPLES))
    return f"{HEAD}\n{''.join(sections)}".rstrip("\n") + "\n"
