"""Files of counts written by earlier code (fixtures/README.md) open with the same contents."""

from pathlib import Path
from shutil import copyfile

import pytest

from countless.client.durable.count_file import CountFile
from countless.core.messages import Report, SiteId, Snapshot, UpMessage

FIXTURES = Path(__file__).parent / "fixtures"
CREATED = 1_700_000_000 << 30


@pytest.mark.parametrize(
    ("name", "site_id", "messages"),
    [
        (
            "counting",
            SiteId("old-host", CREATED + 1),
            [
                *(Snapshot("hits", 3, 35), Snapshot("hits", 3, 30), Report("hits", 3, 32, 1)),
                *(Snapshot('hits{route="/a"}', 0, 7), Snapshot('hits{route="/a"}', 0, 0)),
                Report('hits{route="/a"}', 0, 7, 7),
            ],
        ),
        (
            "renewed",
            SiteId("old-host", CREATED + 3),
            [Snapshot("hits", 0, 8), Snapshot("hits", 0, 0), Report("hits", 0, 0, 0)],
        ),
    ],
)
def test_file_of_earlier_code_opens(name: str, site_id: SiteId, messages: list[UpMessage], tmp_path: Path) -> None:
    file = CountFile.open_orphan(Path(copyfile(FIXTURES / f"{name}.counts", tmp_path / "1.counts")))
    assert file is not None
    assert file.site_id == site_id
    assert messages == [
        message for each, record in file.records.items() for message in (record.snapshot(each), *record.resend(each))
    ]
    file.release()
