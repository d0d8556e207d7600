"""Calls of a model, drawn from a seed: every minute offers more tokens than its limit has."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from race.limits.workloads import OFFERED, USED

PAGES = Path(__file__).parents[2] / "docs"
PROMPT = (200, 2000)  # characters: passages of the documentation, with its code and tables
MAX_TOKENS = (100, 400)
SECONDS = (0.5, 3.0)  # that the model takes
PAUSE_S = 0.5  # at both ends of a minute, so that every call is decided in one minute for certain
_MEAN = 400  # tokens used by a call, about
_COUNT = """
import json, sys, litellm
model, prompts = json.load(sys.stdin)
count = lambda prompt: litellm.token_counter(model=model, messages=[{"role": "user", "content": prompt}])
print(json.dumps([count(prompt) for prompt in prompts]))
"""


class Call(NamedTuple):
    number: int
    minute: int
    at: float  # seconds since the begin of its minute
    replica: int
    prompt: str
    max_tokens: int
    answer: int  # tokens
    seconds: float


def calls(minutes: int, replicas: int, limit: int, seed: int) -> list[Call]:
    rng = Random(seed)  # noqa: S311
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted(PAGES.rglob("*.md")))
    moments = [(minute, at) for minute in range(minutes) for at in _times(rng, OFFERED * limit / _MEAN)]
    return [_call(rng, text, number, minute, at, replicas) for number, (minute, at) in enumerate(moments)]


def _times(rng: Random, number: float) -> list[float]:
    """The first begins the window of LiteLLM, so that it is the same minute."""
    return [PAUSE_S, *sorted(rng.uniform(PAUSE_S, 60 - PAUSE_S) for _ in range(int(number)))]


def _call(rng: Random, text: str, number: int, minute: int, at: float, replicas: int) -> Call:
    length = rng.randint(*PROMPT)
    begin = rng.randrange(len(text) - length)
    most = rng.randint(*MAX_TOKENS)
    prompt = f"{number}: {text[begin : begin + length]}"
    answer = round(most * rng.uniform(*USED))
    return Call(number, minute, at, rng.randrange(replicas), prompt, most, answer, rng.uniform(*SECONDS))


def number_of(prompt: str) -> int:
    return int(prompt.partition(":")[0])


def prompt_tokens(python: Path, model: str, prompts: Iterator[str]) -> list[int]:
    """As the tokenizer of the model counts them, which LiteLLM has."""
    command = [str(python), "-W", "ignore", "-c", _COUNT]
    done = subprocess.run(command, input=json.dumps([model, list(prompts)]), capture_output=True, text=True, check=True)  # noqa: S603
    counts: list[int] = json.loads(done.stdout.splitlines()[-1])
    return counts
