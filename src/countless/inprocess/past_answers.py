"""The answers of the past, in little memory: many of the last minutes, few of long ago."""

from countless.core.windows.rolling import Record

MAX_RECORDS = 512  # beyond it every second one of the older half is dropped, so gaps grow with the age


class PastAnswers:
    """Records, oldest first. If the clock goes back, they begin again."""

    def __init__(self, gap_s: float) -> None:
        self.records: list[Record] = []
        self._gap_s = gap_s

    def is_due(self, now: float) -> bool:
        return not self.records or not 0 <= now - self.records[-1].time < self._gap_s

    def add(self, record: Record) -> None:
        records = self.records
        if records and record.time < records[-1].time:
            records.clear()
        if records and record.time == records[-1].time:
            records.pop()
        records.append(record)
        if len(records) > MAX_RECORDS:
            del records[: MAX_RECORDS // 2 : 2]
