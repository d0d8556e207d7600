"""What is built is what works: wheel and sdist, a bare client, and the demo from a fresh environment."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import countless
from support.service import environment

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder], cwd=ROOT, check=True, capture_output=True
    )
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


def test_wheel_and_sdist_have_the_version_of_the_package(built: Path) -> None:
    assert {path.name for path in built.iterdir()} == {
        f"countless-{countless.__version__}-py3-none-any.whl",
        f"countless-{countless.__version__}.tar.gz",
    }


def test_wheel_has_the_files_of_the_package_only(wheel: Path) -> None:
    package = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src/countless").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert inside == package


def test_readme_of_the_package_has_no_relative_links(wheel: Path) -> None:
    """Package indexes show it elsewhere."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode()
    assert "# Countless" in text
    assert not re.findall(r"\]\((?!https://)[^)]*\)", text)
    assert re.search(rf"\]\(https://\S+/raw/v{countless.__version__}/docs/images/kill.svg\)", text)
    assert re.search(rf"\]\(https://\S+/blob/v{countless.__version__}/docs/guides/limit-spending.md\)", text)


def test_sdist_has_the_tests(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "tests/README.md", "src/countless/__init__.py"} <= names
    assert {"docs/index.md", "design/claims.md"} <= names


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
def test_demo_runs_in_a_fresh_environment_with_the_lock_file_of_the_server(fresh: Path) -> None:
    requirements = ROOT / "requirements/server.txt"
    pip(fresh, "install", "--quiet", "--no-compile", "--require-hashes", "-r", str(requirements))
    output = run(fresh, "-m", "countless.cli.main", "demo", "--events", "100000")
    assert "A rate limiter reads the total" in output


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
