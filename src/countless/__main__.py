"""`python -m countless`: the command line."""

from countless.cli.main import main

main()
