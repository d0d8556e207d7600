"""Every limit of one side fits those of the other: what a client may do by its own limits, a coordinator accepts."""

from starlette.applications import Starlette

from countless.agent.intake import MAX_SERIES
from countless.client.session.protocol import HELLO_TIMEOUT_S as CLIENT_HELLO_TIMEOUT_S
from countless.core.family.site import LABEL_CAP, MAX_COUNTS
from countless.server.cluster.log_store import LogStore
from countless.server.http.sockets.websocket import HELLO_TIMEOUT_S
from countless.server.serve import uvicorn_config
from countless.server.settings import Settings
from countless.server.storage.commit import MAX_QUEUED_ITEMS
from countless.wire.families import MAX_LABELS_BYTES, FamilyLabels, FamilyReport
from countless.wire.frames import MAX_FRAME_BYTES, MAX_NUMBER, encode_frames
from countless.wire.keys import MAX_NAME_CHARS
from countless.wire.nats_subjects import DataFrame, encode_data

BROKER_BYTES = 1 << 20  # the default of a broker for one message
SETTINGS = Settings()
LONGEST = "\U0001f600" * MAX_NAME_CHARS


def test_largest_frame_fits_the_socket_and_the_broker() -> None:
    assert uvicorn_config(Starlette(), SETTINGS, "warning").ws_max_size >= MAX_FRAME_BYTES
    assert len(encode_data(DataFrame(1 << 62, b" " * MAX_FRAME_BYTES))) <= BROKER_BYTES
    assert 2 * LogStore.part_bytes <= BROKER_BYTES  # a part of a record, with its header


def test_longest_lists_of_a_family_fit_in_a_frame() -> None:
    numbers = tuple(number for _ in range(MAX_COUNTS) for number in (LABEL_CAP, MAX_NUMBER))
    (report,) = encode_frames([FamilyReport(LONGEST, MAX_NUMBER, MAX_NUMBER, numbers)])
    shortest = ("x",) * (MAX_LABELS_BYTES // 41)  # an item ends when the next name, and 40 bytes, do not fit
    (labels,) = encode_frames([FamilyLabels(LONGEST, shortest)])
    assert max(len(report), len(labels)) <= MAX_FRAME_BYTES


def test_process_with_all_its_counters_is_within_the_limits_of_the_coordinator() -> None:
    counters = SETTINGS.max_counters_per_site
    assert counters >= MAX_SERIES
    assert 3 * counters <= MAX_QUEUED_ITEMS  # a new round, a trigger and an acknowledgement of each
    assert counters <= SETTINGS.max_share * SETTINGS.max_counters
    assert CLIENT_HELLO_TIMEOUT_S >= HELLO_TIMEOUT_S
