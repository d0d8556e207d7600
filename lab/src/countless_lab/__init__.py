"""The laboratory of Countless: games, audits, simulations and the demo.

Installed, it is found by its entry points: `countless demo`, `countless lab`, and its schemes by their names.
"""

__version__ = "0.1.0"
COMMANDS = {"demo": "countless_lab.cli.demo", "lab": "countless_lab.cli"}


def register() -> None:
    """Do what the entry points do, where the sources are on the path and nothing is installed."""
    from countless import cli
    from countless.schemes.registry import SCHEMES
    from countless_lab.schemes.blocks import Blocks
    from countless_lab.schemes.hyz import Hyz

    cli.OTHERS.update(COMMANDS)
    for scheme in (Hyz, Blocks):
        SCHEMES.setdefault(scheme.name, scheme)
