"""`python -m race llm`: tokens per minute of a key over three LiteLLM proxies, with its own limiter and with ours."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from countless.errors import InvalidParameter
from race.llm.play import play
from race.llm.table import measured, results_table
from race.options import create, terminal
from tools.tables import publish

LIMIT = 40_000
MINUTES = 4


def llm(
    minutes: Annotated[int, typer.Option(min=2, help="On the real clock; the store is killed in the last.")] = MINUTES,
    limit: Annotated[int, typer.Option(min=10_000, help="Tokens per minute.")] = LIMIT,
    seed: Annotated[int, typer.Option(help="Seed of the calls.")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the numbers into this file.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Write the table into the docs.")] = False,
) -> None:
    """Limit the tokens per minute of a key over three proxies of LiteLLM. `make race-llm` installs what it needs."""
    python = Path(os.environ.get("INTEGRATIONS_PYTHON", ".venv/integrations/bin/python"))
    if not python.exists():
        raise InvalidParameter("INTEGRATIONS_PYTHON", str(python), "Python with LiteLLM's proxy: run `make race-llm`")
    if json_file is not None:
        create(json_file)
    results = play(python, minutes, limit, seed)
    terminal().print(results_table(results))
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(row) for row in results], indent=1) + "\n", encoding="utf-8")
    publish([measured(results)], save=write)
