"""`countless`: parsing and printing only.

Exit codes: 0 success, 1 the result is negative (each command documents when), 2 wrong use; nothing was changed,
75 no answer (`take`).
"""

import os
import sys
from contextlib import suppress
from errno import EDQUOT, ENOSPC
from typing import NoReturn

from countless import __version__

# It has packages of which other programs, such as LiteLLM's proxy, need other versions.
INSTALL_SERVER = "run, best in an environment of its own: pip install 'countless[server]'"


def main() -> None:
    """Run the command line; an error that the user can fix is one line on standard error."""
    words = sys.argv[1:]
    try:
        import typer
    except ImportError:
        if words == ["--version"]:
            sys.exit(print(f"countless {__version__}"))
        _fail(f"the command line needs more packages; {INSTALL_SERVER}")

    from countless.cli.commands import build
    from countless.errors import CountlessError

    try:
        try:
            code = build(words)(prog_name="countless", standalone_mode=False)
        finally:
            sys.stdout.flush()  # not when Python ends: that error would have no line of its own
    except typer.TyperException as error:
        context: typer.Context | None = getattr(error, "ctx", None)
        message = " ".join(error.format_message().split()).removesuffix(".")
        message = message[:1].lower() + message[1:]
        _fail(message + (f" (see: {context.command_path} --help)" if context else ""))
    except CountlessError as error:
        _fail(error)
    except ModuleNotFoundError as missing:
        install = "run: pip install 'countless-lab[figures]'" if words[:1] == ["lab"] else INSTALL_SERVER
        if not missing.name or missing.name.startswith("countless"):
            raise
        _fail(f"{missing.name.partition('.')[0]} is not installed; {install}")
    except OSError as error:  # a full disk, a file that this user may not write
        if error.filename is None and error.errno not in (ENOSPC, EDQUOT):
            raise
        with suppress(OSError):  # what is left of the output must not fail again when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"{error.filename or 'output cannot be written'}: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(code)


def _fail(message: object) -> NoReturn:
    print(f"countless: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
