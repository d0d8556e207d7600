"""What is built is what works: wheel and sdist, a bare client, and the demo from a fresh environment."""

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


def test_the_version_stands_in_one_place(built: Path) -> None:
    assert {path.name for path in built.iterdir()} == {
        f"countless-{countless.__version__}-py3-none-any.whl",
        f"countless-{countless.__version__}.tar.gz",
    }


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    package = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src/countless").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert inside == package


def test_the_sdist_can_be_tested(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "tests/README.md", "src/countless/__init__.py"} <= names


def test_installed_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    """First as a bare client, which pulls nothing heavy; then with the server's lock file, for the demo."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    install(tmp_path, str(wheel))
    listed = run(tmp_path, "-m", "pip", "list", "--format=freeze")
    names = {line.partition("==")[0].partition(" @")[0].lower() for line in listed.splitlines()}
    assert names - {"pip", "setuptools"} == {"countless", "msgspec", "websockets"}
    code = "import countless; t = countless.Tracker(sites=3); t.site(1).add(5); print(t.answer.estimate)"
    assert run(tmp_path, "-c", code) == "5\n"
    install(tmp_path, "--require-hashes", "-r", str(ROOT / "requirements/server.txt"))
    output = run(
        tmp_path, "-m", "countless.cli.main", "demo", "--sites", "40", "--processes", "2", "--events", "100000"
    )
    assert "Guaranteed: an error of at most" in output


def install(folder: Path, *what: str) -> None:
    run(folder, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", *what)


def run(folder: Path, *arguments: str) -> str:
    variables = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    command = [str(folder / "venv/bin/python"), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=variables, cwd=folder).stdout
