"""Every command has short help with a valid example, completion works, and wrong calls exit 2 with one line."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from countless import cli
from support.commands import all_commands, command_of, run_command
from support.service import environment

COMMANDS = all_commands()
TOP_LEVEL = [name for names in cli.PANELS.values() for name in names]
LONGEST = 72  # characters of a line of help


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_help_with_an_example_of_options_that_exist(words: str) -> None:
    command = COMMANDS[words]
    assert command.epilog is not None
    example = shlex.split(command.epilog.removeprefix("Example:"), comments=True)
    assert example[: len(words.split()) + 1] == ["countless", *words.split()]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in example if word.startswith("--")} <= known


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_and_option_has_one_short_sentence(words: str) -> None:
    command = COMMANDS[words]
    first = (command.help or "").partition("\n\n")[0]
    for name, text in [
        (words, first),
        *((parameter.name, getattr(parameter, "help", None)) for parameter in command.params),
    ]:
        assert text, f"{words}: {name}"
        assert len(text) <= LONGEST, f"{words}: {name}: {len(text)} characters"
        assert text[0].isupper(), f"{words}: {name}"
        assert text.endswith((".", "?")), f"{words}: {name}"


def test_top_level_has_five_panels_in_order() -> None:
    text = run_command("--help", COLUMNS="80").stdout
    panels = re.findall(r"^╭─ (.+?) ─", text, re.MULTILINE)
    assert panels == ["Options", "Start", "Limit", "Count and read", "Operate", "Lab"]
    assert re.findall(r"^│ ([a-z]+)  ", text, re.MULTILINE) == TOP_LEVEL
    assert "hold across all your processes." in text


@pytest.mark.parametrize(
    ("noun", "commands"),
    [
        ("budget", "create list get set reset watch delete"),
        ("counter", "create list set delete"),
        ("site", "list forget"),
        ("token", "create list rotate revoke"),
        ("lab", "attack simulate scaling audit report"),
    ],
)
def test_noun_has_commands_in_order(noun: str, commands: str) -> None:
    text = run_command(noun, "--help", COLUMNS="80").stdout
    assert re.findall(r"^│ ([a-z]+)  ", text, re.MULTILINE) == commands.split()
    assert [words.partition(" ")[2] for words in COMMANDS if words.startswith(f"{noun} ")] == commands.split()


def test_command_has_only_options_of_its_own() -> None:
    assert {parameter.name for parameter in command_of(["budget", "get"]).params} == {"name", "url", "token", "as_json"}


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
def test_command_does_not_import_what_others_need() -> None:
    code = (
        "import sys; sys.argv = ['countless', 'get', 'x', '--url', 'http://127.0.0.1:1']\n"
        "from countless.cli import coordinator\n"
        "from countless.cli.main import main\n"
        "coordinator.WAIT_S = 0.0\n"
        "try: main()\n"
        "except SystemExit: print(sorted(each for each in sys.modules if 'lab' in each or 'server' in each))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "[]\n", result.stderr


INVALID = """
frobnicate
counters
plan --sites many
plan --sites 0
lab
lab simulate --stream no-such
lab attack --scheme no-such
lab attack --backend local
lab attack --tries 3
lab attack --seconds 1
lab attack --adversary search --tries 0
lab report --jobs 0
lab report --out /dev/null/report
plan --slack 5%
plan --budget 50M --rate 10000/s
plan --events 1e9
demo --processes 2
demo --port 2690
demo --keep --events 5000
health --url ftp://127.0.0.1
serve --tls-cert no-such.pem --tls-key no-such.pem
take a --wait 3
add a --timeout -1
agent --timeout -1
site forget --older-than soon
token revoke '' --state-dir .
serve --port 99999
validate no-such.toml
budget
budget get
budget get a b
budget get a --limit 5
budget set a
budget create a
budget create a --limit many
counter delete a --keep 3
site forget
site forget a --older-than 30d
top a --window now --rolling 5m
top a --limit 0
rate a --over 5m
quantile a 99
get
get nothing --url ftp://127.0.0.1
token unknown
token create unknown --state-dir x
token rotate --state-dir x
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", INVALID.strip().splitlines())
def test_wrong_call_exits_2_with_one_line(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_command(*shlex.split(words))
    assert result.returncode == 2, (result.stdout, result.stderr)
    assert re.fullmatch(r"countless: .+\n", result.stderr)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("frobnicate", "no such command 'frobnicate' (see: countless --help)"),
        ("counters", "no such command 'counters'. Did you mean 'counter'? (see: countless --help)"),
        ("budget creat x", "no such command 'creat'. Did you mean 'create', "),
        ("budget", "missing command (see: countless budget --help)"),
        ("budget get x --limit 5", "no such option: --limit (see: countless budget get --help)"),
        ("plan --sites many", "invalid value for '--sites': "),
        (
            "agent --http-port 99999",
            "http-port = 99999 is not allowed: http-port must be an integer from 0 to 65,535\n",
        ),
        ("top x -n 0", "invalid value for '--limit' / '-n': Input should be greater than or equal to 1 (see: "),
        ("get", "missing argument 'name' (see: countless get --help)"),
        ("budget create x", "missing option '--limit' (see: countless budget create --help)"),
        ("serve --port 99999", "port = 99999 is not allowed: port must be an integer, at least 0 and at most 65,535\n"),
    ],
)
def test_reason_names_what_is_wrong_and_what_is_allowed(words: str, reason: str) -> None:
    assert run_command(*words.split()).stderr.startswith(f"countless: {reason}")


def test_without_a_command_the_help_is_printed() -> None:
    result = run_command()
    assert (result.returncode, result.stderr) == (2, "")
    assert "quantile" in result.stdout


@pytest.mark.slow
def test_output_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "countless", "token", "--help"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), check=False)
    assert (result.returncode, result.stderr) == (2, "countless: output cannot be written: No space left on device\n")
