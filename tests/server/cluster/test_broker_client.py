"""Names that are replaced in the library of NATS: ordinary messages are read as it reads them, hostile ones are not."""

from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.protocol import parser

from countless.server.cluster import broker_client

SUBJECTS = st.from_regex(r"[A-Za-z0-9_$-]{1,12}(\.[A-Za-z0-9_$*>-]{1,12}){0,4}", fullmatch=True)


def as_published() -> ModuleType:
    """The parser once more, without what `broker_client` has replaced in it."""
    assert parser.__file__ is not None
    spec = spec_from_file_location("parser_as_published", parser.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PUBLISHED = as_published()


@given(subject=SUBJECTS, number=st.integers(1, 10**6), reply=st.none() | SUBJECTS, size=st.integers(0, 10**6))
def test_ordinary_messages_are_read_as_the_library_reads_them(
    subject: str, number: int, reply: str | None, size: int
) -> None:
    words = [subject, str(number), *([reply] if reply else [])]
    for name, line in (
        ("MSG_RE", f"MSG {' '.join(words)} {size}\r\n"),
        ("HMSG_RE", f"HMSG {' '.join(words)} {size // 2} {size}\r\n"),
    ):
        ours, theirs = (getattr(module, name).match(line.encode()) for module in (parser, PUBLISHED))
        assert ours is not None
        assert theirs is not None
        assert ours.groups() == theirs.groups()


@pytest.mark.parametrize("name", sorted(broker_client._STRICT))
def test_subject_with_a_form_feed_does_not_choose_the_subscription(name: str) -> None:
    """The library takes what follows for the number of the subscription."""
    hidden = f"{name.partition('_')[0]} countless.up.x\f7 1 0{' 0' * (name == 'HMSG_RE')}\r\n".encode()
    assert getattr(PUBLISHED, name).match(hidden)[2] == b"7"
    ours = getattr(parser, name).match(hidden)
    assert ours is None or ours[1] == b"countless.up.x\f7"
