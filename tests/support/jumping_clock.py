"""A program under a wall clock that is ahead, by the seconds in the file COUNTLESS_CLOCK_FILE.

python -P jumping_clock.py PROGRAM.py ARGUMENTS
"""

import os
import runpy
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    file, real_time = Path(os.environ["COUNTLESS_CLOCK_FILE"]), time.time
    time.time = lambda: real_time() + float(file.read_text() or 0)  # before the program imports it
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
