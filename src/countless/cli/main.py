"""`countless`: one verb per file; parsing and printing only.

Exit codes: 0 done, 1 the thing asked about is not so, 2 the request itself was wrong (nothing was changed).
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

# In the order in which `--help` lists them. Each is a file with the verb as a function and an EXAMPLE.
VERBS = (
    "demo",
    "plan",
    "simulate",
    "attack",
    "report",
    "audit",
    "serve",
    "agent",
    "add",
    "get",
    "watch",
    "counters",
    "sites",
    "token",
    "validate",
    "doctor",
)


def build() -> "typer.Typer":
    """The command line with all its verbs."""
    import typer

    app = typer.Typer(
        name="countless",
        help="A global count over many machines that knows how wrong it can be.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=False)(_everything)
    for verb in VERBS:
        module = import_module(f"countless.cli.{verb}")
        app.command(epilog=module.EXAMPLE)(getattr(module, verb))
    return app


def main() -> None:
    """Run the command line; an error that the user can mend is one line on standard error."""
    try:
        import typer  # noqa: F401
    except ImportError:
        sys.exit("countless: the command line needs: pip install 'countless[server]'")

    from countless.errors import CountlessError

    try:
        build()()
    except CountlessError as error:
        print(f"countless: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _everything() -> None:
    """A global count over many machines that knows how wrong it can be."""


if __name__ == "__main__":
    main()
