"""Programs that need the large libraries of requirements/integrations.txt, in processes of their own."""

import os
import subprocess
from pathlib import Path

from support.service import environment
from support.uvicorn_app import UvicornApp

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("INTEGRATIONS_PYTHON", "")
PROGRAMS = Path(__file__).parent / "programs"


def run(program: str, **variables: str) -> str:
    """The output of a program."""
    command = [PYTHON, "-W", "ignore", str(PROGRAMS / program)]
    result = subprocess.run(
        command, env=_environment(variables), capture_output=True, text=True, timeout=240, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def _environment(variables: dict[str, str]) -> dict[str, str]:
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1", "LITELLM_TELEMETRY": "False"}
    return environment(PYTHONPATH=str(ROOT / "src"), **offline, **variables)


class StubModel(UvicornApp):
    python = PYTHON

    def __init__(self, log: Path) -> None:
        super().__init__("stub_model:app", PROGRAMS, log, **_environment({}))


class Proxy(UvicornApp):
    """The LiteLLM proxy with the configuration `config.yaml` of a folder."""

    def __init__(self, folder: Path, log: Path, **variables: str) -> None:
        super().__init__("litellm", folder, log, **_environment(variables))

    def command(self, app: str, folder: Path) -> list[str]:
        config = str(folder / "config.yaml")
        return [str(Path(PYTHON).parent / app), "--config", config, "--host", "127.0.0.1", "--port", "0"]
