"""The command `countless` under a wall clock that is ahead, by the seconds in the file COUNTLESS_CLOCK_FILE."""

import os
import time
from pathlib import Path

if __name__ == "__main__":
    file, real_time = Path(os.environ["COUNTLESS_CLOCK_FILE"]), time.time
    time.time = lambda: real_time() + float(file.read_text() or 0)  # before any module of countless imports it
    from countless.cli.main import main

    main()
