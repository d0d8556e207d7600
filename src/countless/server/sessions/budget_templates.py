"""Templates: a budget `keys/*` is a rule for every name that begins with `keys/`. It has no units itself.

Each such name is a budget of its own. It is made when a site first asks for it, and dropped when nothing of it is left
to remember: with periods, when the last of them is closed; without, when no unit of it is spent, held or granted.
"""

from countless.errors import InvalidParameter

SUFFIX = "/*"


def is_template(name: str) -> bool:
    return name.endswith(SUFFIX)


def validate_budget_name(name: str) -> None:
    """A name that an operator gives. A star has a meaning at the end only, so it is refused elsewhere."""
    prefix = name.removesuffix(SUFFIX)
    if not prefix or "*" in prefix:
        raise InvalidParameter("name", name, "a name without *, or such a name followed by /* (a template)")


class Templates:
    """Which templates there are, and the names that follow each of them at present."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}  # by template

    @property
    def names_in_use(self) -> int:
        """Of all templates."""
        return sum(map(len, self._names.values()))

    def add(self, template: str) -> None:
        self._names[template] = set()

    def remove(self, template: str) -> None:
        del self._names[template]

    def of(self, name: str) -> str | None:
        """The template with the longest prefix of this name.

        >>> templates = Templates()
        >>> templates.add("keys/*")
        >>> templates.of("keys/a/b"), templates.of("keys")
        ('keys/*', None)
        """
        while "/" in name:
            name = name.rpartition("/")[0]
            if name + SUFFIX in self._names:
                return name + SUFFIX
        return None

    def names(self, template: str) -> set[str]:
        """Those in use. The caller adds and discards."""
        return self._names[template]
