"""Options and fixtures of the whole suite."""

import gc
import os
import signal
import socket

import pytest
from hypothesis import HealthCheck, settings

import countless_lab

pytest_plugins = ["support.hang"]
LARGE = ("envoy/server", "langchain", "litellm/logger", "litellm/proxy", "litellm/sdk", "llama_index", "pydantic_ai")
collect_ignore_glob = [
    "src/countless/integrations/django.py",
    "src/countless/integrations/rest_framework.py",
]  # need settings
# They need large libraries: `make integrations`
collect_ignore_glob += [*(f"src/countless/integrations/{name}.py" for name in LARGE), "tests/real_libraries/programs/*"]
if "INTEGRATIONS_PYTHON" not in os.environ:
    collect_ignore_glob.append("tests/real_libraries/test_*")

# The same examples on every machine and in every run: a failure can always be repeated.
settings.register_profile(
    "countless",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("soak", settings.get_profile("countless"), max_examples=500)  # for `make soak`
settings.load_profile("countless")


countless_lab.register()  # in a work tree whose environment has not installed it


# Collecting the tests makes hundreds of thousands of objects that stay. The garbage collector leaves them alone.
gc.disable()


# A shell starts background jobs with SIGINT ignored, and programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what the scenarios print today into their files")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether scenario files are to be rewritten instead of compared."""
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture
def unused_url() -> str:
    """Where no coordinator listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"
