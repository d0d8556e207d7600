"""Three proxies of LiteLLM, with one limiter or none."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from re import findall
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.request import urlopen

from countless.client.api import ApiClient
from countless.errors import InvalidParameter
from race.contestants.base import Case
from race.contestants.coordinator import CoordinatorBackend
from race.contestants.redis import RedisServer
from race.limits.contestants.base import NoServer, Server
from race.limits.contestants.ours import coordinator
from race.llm.model import MODEL
from race.waiting import until
from race.wire import free_port

REPLICAS = 3
SLACK = 0.01
START_S = 300.0  # a proxy needs five seconds of processor time
CONFIG = """
model_list:
  - model_name: {model}
    litellm_params: {{model: openai/{model}, api_base: "http://127.0.0.1:{port}/v1", api_key: none}}
litellm_settings:
  num_retries: 0{callbacks}
general_settings:
  master_key: sk-0123456789abcdef0123456789abcdef
  custom_auth: keys.check{settings}
"""
KEYS = """
from litellm.proxy._types import UserAPIKeyAuth

async def check(request, api_key):
    return UserAPIKeyAuth(api_key=api_key, tpm_limit={limit})
"""
OURS = """
  callbacks: countless.integrations.litellm.limits
callback_settings:
  countless: {tokens: ["keys/{key}"]}"""


class Setting(NamedTuple):
    """What a proxy needs to know of its limiter."""

    callbacks: str = ""
    settings: str = ""  # general ones
    limited: bool = False  # by LiteLLM


class Contestant(NamedTuple):
    name: str
    server: Callable[[], Server]
    setting: Callable[[Server], Setting]


def _litellm(server: Server, more: str = "") -> Setting:
    redis = f"\n  coordination_redis: {{host: 127.0.0.1, port: {server.address}}}"
    return Setting(settings=redis + more, limited=True)


CONTESTANTS = (
    Contestant("no limiter", NoServer, lambda _: Setting()),
    Contestant("LiteLLM + Redis", lambda: RedisServer(Case(1, 1)), _litellm),
    Contestant(
        "LiteLLM + Redis, AOF, fail closed",
        lambda: RedisServer(Case(1, 1), append_only=True),
        lambda server: _litellm(server, "\n  fail_closed_rate_limit_enforcement: true"),
    ),
    Contestant("LiteLLM + Countless", coordinator, lambda _: Setting(callbacks=OURS)),
)


class Fleet:
    """The proxies of a contestant, and its server."""

    def __init__(self, contestant: Contestant, python: Path, model: int, limit: int, folder: Path) -> None:
        self.name = contestant.name
        self.server = contestant.server()
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        folder.mkdir()
        setting = contestant.setting(self.server)
        text = CONFIG.format(model=MODEL, port=model, callbacks=setting.callbacks, settings=setting.settings)
        (folder / "config.yaml").write_text(text, encoding="utf-8")
        (folder / "keys.py").write_text(KEYS.format(limit=limit if setting.limited else None), encoding="utf-8")
        if isinstance(self.server, CoordinatorBackend):
            rule = {"name": "keys/*", "limit": limit, "slack": SLACK, "per": "minute"}
            ApiClient(self.server.address).request("POST", "/api/v1/budgets", rule)
        ports = [free_port() for _ in range(REPLICAS)]
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        try:
            for port in ports:
                self._start(python, port)
            for url in self.urls:
                until(lambda url=url: _answers(url), f"{self.name}: {url}", START_S)  # type: ignore[misc]
        except BaseException:
            self.close()
            raise

    def _start(self, python: Path, port: int) -> None:
        environment = os.environ | {
            "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
            "COUNTLESS_URL": self.server.address,
            "COUNTLESS_CLIENT_STATE_DIR": str(self._folder / str(port)),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_TELEMETRY": "False",
            "NO_PROXY": "127.0.0.1",
        }
        command = [str(python.parent / "litellm"), "--config", str(self._folder / "config.yaml")]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        with (self._folder / f"{port}.log").open("wb") as log:
            self._processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))  # noqa: S603

    def messages(self) -> int:
        """Packets with data on the open connections of its server, in both directions."""
        port = self.server.address.rpartition(":")[2]
        done = subprocess.run(["ss", "-tinH", f"sport = :{port}"], capture_output=True, text=True, check=True)  # noqa: S603, S607
        return sum(map(int, findall(r"data_segs_(?:in|out):(\d+)", done.stdout)))

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self.server.close()


def _answers(url: str) -> bool:
    with suppress(OSError), urlopen(f"{url}/health/liveliness", timeout=5.0):  # noqa: S310
        return True
    return False


@contextmanager
def fleets(python: Path, model: int, limit: int) -> Iterator[list[Fleet]]:
    if shutil.which("ss") is None:
        raise InvalidParameter("ss", "not found", "on the PATH (requirements/system.sh installs it)")
    started: list[Fleet] = []
    with TemporaryDirectory() as folder:
        try:
            for number, contestant in enumerate(CONTESTANTS):
                started.append(Fleet(contestant, python, model, limit, Path(folder) / str(number)))
            yield started
        finally:
            for fleet in started:
                fleet.close()
