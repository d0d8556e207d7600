"""Libraries whose undocumented parts are used, and the versions whose parts were looked at and tested.

With another version the program does not start: it would run without limits, or read what a hostile site sends as a
request of a coordinator. The client uses documented names only, and has a range of versions (`pyproject.toml`).
"""

from importlib.metadata import version

from countless.errors import CountlessError

TESTED = {"nats-py": "2.16", "uvicorn": "0.54", "websockets": "17.4"}


class UntestedVersion(CountlessError):
    """A library is installed in another version than the one that was tested."""

    def __init__(self, library: str, installed: str) -> None:
        tested = TESTED[library]
        super().__init__(
            f"{library} {installed} is installed, and Countless needs {tested}; "
            f"run: pip install '{library}~={tested}.0'"
        )


def require_tested(*libraries: str) -> None:
    """Called before their undocumented parts are imported."""
    for library in libraries:
        installed = version(library)
        if installed.split(".")[:2] != TESTED[library].split("."):
            raise UntestedVersion(library, installed)
