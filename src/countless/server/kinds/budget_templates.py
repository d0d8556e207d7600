"""Templates: a budget `keys/*` is a rule for every name that begins with `keys/`. It has no units itself.

Each such name is a budget of its own. It is made when a site first asks for it, and dropped when nothing of it is left
to remember: with periods, when the last of them is closed; without, when no unit of it is spent, held or granted.
"""

from collections import Counter as Tally
from collections.abc import Collection

from countless.errors import InvalidParameter
from countless.server.sessions.shares import UNLIMITED
from countless.wire.keys import prefix_of_template, templates_of, validate_budget


def validate_budget_name(name: str) -> None:
    """A name that an operator gives. A star has a meaning at the end only, so it is refused elsewhere."""
    prefix = prefix_of_template(validate_budget(name, "name"))
    if not prefix or "*" in prefix:
        raise InvalidParameter("name", name, "a name without *, or such a name followed by /* (a template)")


class Templates:
    """The templates, and the names that follow each of them at present."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, str]] = {}  # by template: names, and which peer used each first
        self._used: Tally[tuple[str, str]] = Tally()  # names by template and peer

    @property
    def names_in_use(self) -> int:
        """The number for all templates."""
        return sum(map(len, self._names.values()))

    def add(self, template: str) -> None:
        self._names[template] = {}

    def remove(self, template: str) -> None:
        del self._names[template]

    def of(self, name: str) -> str | None:
        """The template with the longest prefix of this name.

        >>> templates = Templates()
        >>> templates.add("keys/*")
        >>> templates.of("keys/a/b"), templates.of("keys")
        ('keys/*', None)
        """
        return next((template for template in templates_of(name) if template in self._names), None)

    def names(self, template: str) -> Collection[str]:
        """Those in use."""
        return self._names[template].keys()

    def used_by(self, template: str, peer: str) -> int:
        """The number of names in use that this peer has used first."""
        return 0 if peer == UNLIMITED else self._used[template, peer]

    def add_name(self, template: str, name: str, peer: str = UNLIMITED) -> None:
        self._names[template][name] = peer
        self._used[template, peer] += 1

    def drop_name(self, template: str, name: str) -> None:
        """It may be a name that is not in use."""
        peer = self._names[template].pop(name, None)
        if peer is not None:
            self._used[template, peer] -= 1
            if not self._used[template, peer]:
                del self._used[template, peer]
