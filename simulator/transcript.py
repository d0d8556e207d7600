"""Everything that processes and readers of one seed have seen, as one short hash."""

from hashlib import blake2b

_DIGEST_BYTES = 4  # two seeds that differ have the same digest with probability 2^-32


class Transcript:
    """Frames in both directions and events of readers, in their order, without times; at the end, what is known."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=_DIGEST_BYTES)

    def add(self, who: str, what: bytes) -> None:
        name = who.encode()
        self._hash.update(b"%d %d " % (len(name), len(what)))
        self._hash.update(name)
        self._hash.update(what)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
