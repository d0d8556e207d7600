"""The command `countless` under a wall clock that is ahead, by the seconds in the file COUNTLESS_CLOCK_FILE."""

import os
import time
from pathlib import Path

_FILE = Path(os.environ["COUNTLESS_CLOCK_FILE"])
_real = time.time


def jumping() -> float:
    return _real() + float(_FILE.read_text() or 0)


if __name__ == "__main__":
    time.time = jumping  # before any module of countless imports it
    from countless.cli.main import main

    main()
