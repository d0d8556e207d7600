"""Every verb has help with a valid example, completion works, and invalid requests exit 2."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from countless.cli.main import VERBS, build
from support.commands import run_command
from support.service import environment

GROUP = typer.main.get_command(build())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example_of_options_that_exist(verb: str) -> None:
    assert isinstance(GROUP, TyperGroup)
    command = GROUP.commands[verb]
    assert command.help
    assert command.epilog is not None
    example = shlex.split(command.epilog.removeprefix("Example:"), comments=True)
    assert example[:2] == ["countless", verb]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in example if word.startswith("--")} <= known


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_has_help(verb: str) -> None:
    assert isinstance(GROUP, TyperGroup)
    for parameter in GROUP.commands[verb].params:
        assert getattr(parameter, "help", None), f"{verb} {parameter.opts}"


@pytest.mark.slow
@pytest.mark.parametrize(("shell", "variables"), [
    ("bash", {"COMP_WORDS": "countless pl", "COMP_CWORD": "1"}),
    ("zsh", {"_TYPER_COMPLETE_ARGS": "countless pl"}),
    ("fish", {"_TYPER_COMPLETE_ARGS": "countless pl", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
])  # fmt: skip
@pytest.mark.soak
def test_shell_completion(shell: str, variables: dict[str, str]) -> None:
    variables = environment(_COUNTLESS_COMPLETE=f"complete_{shell}", **variables)
    code = "import sys; sys.argv = ['countless']; from countless.cli.main import main; main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=variables)
    assert "plan" in result.stdout, result.stderr
    assert "serve" not in result.stdout


@pytest.mark.slow
def test_verb_does_not_import_what_others_need() -> None:
    code = (
        "import sys; sys.argv = ['countless', 'get', 'x', '--url', 'http://127.0.0.1:1']\n"
        "from countless.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: print(sorted(each for each in sys.modules if 'lab' in each or 'server' in each))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "[]\n", result.stderr


INVALID = """
frobnicate
plan --sites many
plan --sites 0
simulate --stream no-such
attack --scheme no-such
serve --port 99999
validate no-such.toml
get nothing --url http://127.0.0.1:1
token unknown --state-dir x
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", INVALID.strip().splitlines())
def test_invalid_request_exits_2_with_a_reason(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_command(*words.split())
    assert result.returncode == 2, (result.stdout, result.stderr)
    assert re.fullmatch(r"countless: .+\n", result.stderr)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("frobnicate", "No such command 'frobnicate' (see: "),
        ("plan --sites many", "Invalid value for '--sites': "),
        (
            "agent --http-port 99999",
            "Invalid value for '--http-port': Input should be less than or equal to 65535 (see: ",
        ),
        ("get", "Missing argument 'name' (see: "),
        ("serve --port 99999", "port = 99999 is not allowed: port must be an integer, at least 0 and at most 65,535\n"),
    ],
)
def test_reason_names_what_is_wrong_and_what_is_allowed(words: str, reason: str) -> None:
    assert run_command(*words.split()).stderr.startswith(f"countless: {reason}")


def test_without_a_verb_the_help_is_printed() -> None:
    result = run_command()
    assert (result.returncode, result.stderr) == (2, "")
    assert "quantile" in result.stdout


@pytest.mark.slow
def test_output_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "countless", "token", "--help"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), check=False)
    assert (result.returncode, result.stderr) == (2, "countless: output cannot be written: No space left on device\n")
