"""`countless` in the process of the test: to start one for each command takes half a second."""

import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from subprocess import CompletedProcess

import pytest

from countless.cli.main import main


def run_command(*arguments: str, **variables: str) -> CompletedProcess[str]:
    """The command with these environment variables, as `subprocess.run` would describe it."""
    output, errors = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["countless", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    return CompletedProcess(arguments, int(ended.value.code or 0), output.getvalue(), errors.getvalue())
