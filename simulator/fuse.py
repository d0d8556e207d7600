"""A process that is killed between two stores to its file of counts: the file must be consistent after each of them."""

from collections.abc import Callable
from types import TracebackType
from typing import Any

from countless.client.durable.count_file import CountFile
from countless.client.durable.word_file import WordFile


class Killed(BaseException):
    """Ends what the process was doing. Nothing more of it has any effect on its files."""


class Fuse:
    """While it is entered, the process runs. It is killed at the store after `left` more; None: at none."""

    burning: "Fuse | None" = None  # of the process that runs now

    def __init__(self, on_killed: Callable[[], None]) -> None:
        self.left: int | None = None
        self._on_killed = on_killed

    def burn(self) -> None:
        if self.left is not None:
            if not self.left:
                raise Killed
            self.left -= 1

    def __enter__(self) -> None:
        Fuse.burning = self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        Fuse.burning = None
        if isinstance(error, Killed):
            self._on_killed()
        return isinstance(error, Killed)


class FusedWords:
    """The part of a memoryview that `WordFile`, `CountFile` and its records use."""

    def __init__(self, words: memoryview) -> None:
        self._words = words
        self.cast = words.cast  # for names: bytes that count once a name word is stored

    def __getitem__(self, at: Any) -> Any:
        return self._words[at]

    def __setitem__(self, at: int, value: int) -> None:
        if Fuse.burning is not None:
            Fuse.burning.burn()
        self._words[at] = value


class FusedWordFile(WordFile):
    def _map_words(self, descriptor: int, offset: int) -> memoryview:
        return FusedWords(super()._map_words(descriptor, offset))  # type: ignore[return-value]


class FusedCountFile(CountFile):
    words = FusedWordFile
