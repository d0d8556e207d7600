"""`python -m countless_lab demo`, or `lab attack`: `countless` where nothing is installed."""

from countless.cli.main import main
from countless_lab import register

register()
main()
