"""What is built is what works: wheels and sdists, a bare client, and the demo from a fresh environment."""

import json
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import countless
import countless_lab
from support.service import TIMEOUT_S, environment

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


FOLDERS = {"countless": ROOT / "src", "countless_lab": ROOT / "lab/src"}  # by package


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    for project in (ROOT, ROOT / "lab"):
        subprocess.run(command, cwd=project, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("countless-*.whl")
    return path


@pytest.fixture(scope="module")
def lab_wheel(built: Path) -> Path:
    (path,) = built.glob("countless_lab-*.whl")
    return path


def test_wheels_and_sdists_have_the_version_of_the_package(built: Path) -> None:
    version = countless.__version__
    ends = ("-py3-none-any.whl", ".tar.gz")
    assert {path.name for path in built.iterdir()} == {f"{name}-{version}{end}" for name in FOLDERS for end in ends}


def test_distributions_name_the_same_version_of_each_other() -> None:
    product, lab = (
        tomllib.loads((ROOT / path).read_text(encoding="utf-8"))["project"]
        for path in ("pyproject.toml", "lab/pyproject.toml")
    )
    assert countless_lab.__version__ == countless.__version__
    assert product["optional-dependencies"]["lab"] == [f"countless-lab=={countless.__version__}"]
    assert lab["dependencies"] == [f"countless[server]=={countless.__version__}"]
    assert set(lab["optional-dependencies"]["figures"]) <= set(product["optional-dependencies"]["dev"])


@pytest.mark.parametrize("package", FOLDERS)
def test_wheel_has_the_files_of_its_package_only(package: str, built: Path) -> None:
    """No tests, no simulator, and nothing of the other distribution."""
    (path,) = built.glob(f"{package}-*.whl")
    expected = {
        str(file.relative_to(FOLDERS[package]))
        for file in (FOLDERS[package] / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    inside = {name for name in zipfile.ZipFile(path).namelist() if ".dist-info/" not in name}
    assert inside == expected
    assert {name.split("/")[0] for name in inside} == {package}
    assert not [name for name in inside if re.search(r"\b(tests?|simulator)/", name)]


def test_metadata_of_the_product_names_no_array_library(wheel: Path) -> None:
    text = metadata(wheel)
    assert re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", text, re.MULTILINE) == ["msgspec", "websockets"]
    named = {match[0] for match in re.findall(r"^Requires-Dist: ([\w-]+)(.*extra == '(?!dev)\w+')", text, re.MULTILINE)}
    assert not named & {"numpy", "scipy", "plotly", "joblib"}


def test_readme_of_the_package_has_no_relative_links(wheel: Path) -> None:
    """Package indexes show it elsewhere."""
    text = metadata(wheel)
    assert "# Countless" in text
    assert not re.findall(r"\]\((?!https://)[^)]*\)", text)
    assert re.search(rf"\]\(https://\S+/raw/v{countless.__version__}/docs/images/kill.svg\)", text)
    assert re.search(rf"\]\(https://\S+/blob/v{countless.__version__}/docs/guides/limit-spending.md\)", text)


def metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        (
            "countless",
            {"tests/README.md", "src/countless/__init__.py", "docs/index.md", "design/claims.md", "conftest.py"},
        ),
        ("countless_lab", {"tests/test_confidence.py", "src/countless_lab/__init__.py"}),
    ],
)
def test_sdist_has_the_tests(package: str, expected: set[str], built: Path) -> None:
    (path,) = built.glob(f"{package}-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    assert {"pyproject.toml", "README.md", "LICENSE", *expected} <= names
    assert (ROOT / "lab/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.fixture
def fresh(wheel: Path, tmp_path: Path) -> Path:
    """The Python of an environment that has the wheel and what it requires."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    pip(python, "install", "--quiet", "--no-compile", str(wheel))
    return python


@pytest.mark.parametrize("name", ["docs.txt", "server.txt"])
def test_short_lock_file_has_the_versions_of_the_long_one(name: str) -> None:
    """So that `make docs`, `make demo` and `make test` in one clone do not replace each other's packages."""
    texts = ((ROOT / "requirements" / each).read_text(encoding="utf-8") for each in (name, "dev.txt"))
    short, long = (re.findall(r"^[\w.-]+==\S+", text, re.MULTILINE) for text in texts)
    assert short
    assert set(short) <= set(long)


def test_client_in_a_fresh_environment_installs_nothing_heavy(fresh: Path) -> None:
    listed = pip(fresh, "list", "--format=freeze")
    names = {line.partition("==")[0].partition(" @")[0].lower() for line in listed.splitlines()}
    assert names == {"countless", "msgspec", "websockets"}
    code = "import countless; t = countless.Tracker(sites=3); t.site(1).add(5); print(t.answer.estimate)"
    assert run(fresh, "-c", code) == "5\n"
    assert run(fresh, "-m", "countless", "--version") == f"countless {countless.__version__}\n"


@pytest.mark.soak
def test_demo_runs_in_a_fresh_environment_with_the_lock_file_of_the_server(fresh: Path, lab_wheel: Path) -> None:
    requirements = ROOT / "requirements/server.txt"
    pip(fresh, "install", "--quiet", "--no-compile", "--require-hashes", "-r", str(requirements))
    without = subprocess.run([fresh, "-m", "countless", "demo"], capture_output=True, text=True, check=False, cwd="/")
    assert (without.returncode, without.stdout) == (2, "")
    assert without.stderr.endswith("run: pip install ./lab\n")
    pip(fresh, "install", "--quiet", "--no-compile", "--no-deps", str(lab_wheel))
    output = run(fresh, "-m", "countless.cli.main", "demo", "--events", "100000")
    assert "A rate limiter reads the total" in output


def test_container_page_runs_from_the_wheel_as_it_is_typed(wheel: Path, tmp_path: Path) -> None:
    """What runs in the container: its command, its health check, and each command that the page executes in it, with
    the variables of the Dockerfile. Only the port and the directory of the volume are the test's.
    """
    dockerfile = (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")
    page = (ROOT / "docs/operate/install.md").read_text(encoding="utf-8")
    section = page[page.index("## A container") : page.index("## systemd")]
    typed = list(
        dict.fromkeys(re.findall(r"^ {4}docker .*exec (?:coordinator|countless) (.+)$", section, re.MULTILINE))
    )
    assert typed == ["countless token create site --label web", "countless counter list"]
    health, serve = re.findall(r"\bCMD (\[.+\])$", dockerfile, re.MULTILINE)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")  # noqa: S202 - our own wheel
    variables = dict(re.findall(r"(COUNTLESS_\w+)=(\S+)", dockerfile))
    assert {"COUNTLESS_STATE_DIR", "COUNTLESS_HOST"} <= set(variables)
    variables |= {"COUNTLESS_STATE_DIR": str(tmp_path / "state"), "COUNTLESS_PORT": "0"}
    variables |= {"PYTHONPATH": str(tmp_path / "installed")}

    def command(words: list[str]) -> list[str]:
        assert words[0] == "countless"
        return [sys.executable, "-m", "countless.cli.main", *words[1:]]

    def execute(words: list[str], **more: str) -> str:
        inside = environment(**variables, **more)
        made = subprocess.run(command(words), capture_output=True, text=True, check=True, env=inside, cwd=tmp_path)
        return made.stdout.strip()

    with (tmp_path / "log").open("w") as log:
        coordinator = subprocess.Popen(
            command(json.loads(serve)),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(**variables),
            cwd=tmp_path,
        )
    try:
        assert coordinator.stdout is not None
        port = coordinator.stdout.readline().strip().rpartition(":")[2]
        variables["COUNTLESS_PORT"] = port
        assert execute(json.loads(health)) == "alive"
        url = f"http://127.0.0.1:{port}"
        make_token, list_counters = (shlex.split(line) for line in typed)
        token = execute(make_token)
        with countless.connect(url, token=token, site="outside") as client:
            client.counter("requests").add(3)
        assert execute(list_counters, COUNTLESS_URL=url).startswith("requests: 3 ")
    finally:
        coordinator.terminate()
        coordinator.communicate(timeout=TIMEOUT_S)
    assert coordinator.returncode == 0


def pip(python: Path, *arguments: str) -> str:
    """With the pip of the environment that runs the tests."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def run(python: Path, *arguments: str) -> str:
    variables = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    command = [str(python), *arguments]
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env=variables, cwd=python.parent
    ).stdout
