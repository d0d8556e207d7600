"""What the client needs to know of the interpreter it runs in."""

import sys

GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()  # one step of C code is atomic
