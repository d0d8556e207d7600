"""`countless`: one verb per file; parsing and printing only.

Exit codes: 0 success, 1 the result is negative (each verb documents when), 2 invalid request; nothing was changed,
75 no answer (`take`).
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from errno import EDQUOT, ENOSPC
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from countless import __version__

if TYPE_CHECKING:
    import typer

# In the order of `--help`. Each is a file with the verb as a function and an EXAMPLE.
VERBS = [
    *("demo", "plan", "simulate", "attack", "report", "scaling", "audit"),
    *("serve", "agent", "add", "get", "rate", "top", "quantile", "watch", "counters", "counter", "budget", "take"),
    *("sites", "forget", "token", "backup", "restore", "validate", "health", "doctor"),
]


def build(verbs: Sequence[str] = VERBS) -> "typer.Typer":
    import typer

    app = typer.Typer(
        name="countless",
        help="A global count over many machines, with bounds on its error.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"countless {__version__}")
            raise typer.Exit

    @app.callback(invoke_without_command=False)
    def root(
        version: Annotated[
            bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
        ] = False,
    ) -> None:
        """A global count over many machines, with bounds on its error."""

    for verb in verbs:
        module = import_module(f"countless.cli.{verb}")
        settings = getattr(module, "CONTEXT_SETTINGS", None)
        app.command(epilog=module.EXAMPLE, context_settings=settings)(getattr(module, verb))
    return app


def main() -> None:
    """Run the command line; an error that the user can fix is one line on standard error."""
    try:
        import typer
    except ImportError:
        if sys.argv[1:] == ["--version"]:
            sys.exit(print(f"countless {__version__}"))
        sys.exit("countless: the command line needs: pip install 'countless[server]'")

    from countless.errors import CountlessError

    usage_error: Any = typer.BadParameter.__bases__[0]  # has no public name in versions of typer without click
    try:
        try:
            named = [verb for verb in VERBS if [verb] == sys.argv[1:2]]  # to import all verbs takes 0.2 s more
            code = build(named or VERBS)(standalone_mode=False)
        finally:
            sys.stdout.flush()  # not when Python ends: that error would have no line of its own
    except usage_error as error:
        if type(error).__name__ != "NoArgsIsHelpError":  # the help was printed already
            message = " ".join(error.format_message().split()).removesuffix(".")
            print(f"countless: {message} (see: {error.ctx.command_path} --help)", file=sys.stderr)
        sys.exit(2)
    except CountlessError as error:
        print(f"countless: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:  # a full disk, a file that this user may not write
        if error.filename is None and error.errno not in (ENOSPC, EDQUOT):
            raise
        print(f"countless: {error.filename or 'output cannot be written'}: {error.strerror}", file=sys.stderr)
        with suppress(OSError):  # what is left of the output must not fail again when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(code)


if __name__ == "__main__":
    main()
