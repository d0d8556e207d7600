"""`countless`: one verb per file; parsing and printing only.

Exit codes: 0 done, 1 the thing asked about is not so, 2 the request itself was wrong (nothing was changed).
"""

import sys


def main() -> None:
    """Run the command line; an error that the user can mend is one line on standard error."""
    try:
        import typer
    except ImportError:
        sys.exit("countless: the command line needs: pip install 'countless[server]'")

    from countless.cli import (
        add,
        agent,
        attack,
        audit,
        counters,
        demo,
        get,
        plan,
        report,
        serve,
        simulate,
        sites,
        token,
        validate,
        watch,
    )
    from countless.errors import CountlessError

    app = typer.Typer(
        name="countless",
        help="A global count over many machines that knows how wrong it can be.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=False)(_version_option)
    app.command(epilog=plan.EXAMPLE)(plan.plan)
    app.command(epilog=simulate.EXAMPLE)(simulate.simulate)
    app.command(epilog=attack.EXAMPLE)(attack.attack)
    app.command(epilog=report.EXAMPLE)(report.report)
    app.command(epilog=audit.EXAMPLE)(audit.audit)
    app.command(epilog=demo.EXAMPLE)(demo.demo)
    app.command(epilog=serve.EXAMPLE)(serve.serve)
    app.command(epilog=agent.EXAMPLE)(agent.agent)
    app.command(epilog=add.EXAMPLE)(add.add)
    app.command(epilog=get.EXAMPLE)(get.get)
    app.command(epilog=watch.EXAMPLE)(watch.watch)
    app.command(epilog=counters.EXAMPLE)(counters.counters)
    app.command(epilog=sites.EXAMPLE)(sites.sites)
    app.command(epilog=token.EXAMPLE)(token.token)
    app.command(epilog=validate.EXAMPLE)(validate.validate)
    try:
        app()
    except CountlessError as error:
        print(f"countless: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _version_option() -> None:
    """A global count over many machines that knows how wrong it can be."""


if __name__ == "__main__":
    main()
