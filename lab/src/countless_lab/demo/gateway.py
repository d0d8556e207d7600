"""One gateway of the demo: a process that admits requests, and shares a limit with two others.

    python -m countless_lab.demo.gateway sync LIMIT
    python -m countless_lab.demo.gateway countless URL BUDGET SITE STATE_DIR

It reads lines from standard input. `serve 100` decides that many requests, and prints how many were admitted. With
sync, `report` prints what was admitted since the last report, and `total 900` is the store's answer to it.
"""

import logging
import sys
from collections.abc import Callable

ANSWER_S = 10.0


Obey = Callable[[str, int], int | None]


def sync(limit: str) -> Obey:
    """Count locally, and decide on this count and the last total that the store returned."""
    total = delta = 0

    def obey(command: str, number: int) -> int | None:
        nonlocal total, delta
        if command == "serve":
            admitted = max(0, min(number, int(limit) - total - delta))
            delta += admitted
            return admitted
        if command == "report":
            return delta
        total, delta = number, 0
        return None

    return obey


def countless(url: str, budget: str, site: str, state_dir: str) -> Obey:
    from countless.client.client import connect

    logging.getLogger("countless").setLevel(logging.ERROR)
    shared = connect(url, site=site, state_dir=state_dir).budget(budget)
    return lambda _, number: sum(bool(shared.take(wait=ANSWER_S)) for _ in range(number))


def main(kind: str, *arguments: str) -> None:
    kinds: dict[str, Callable[..., Obey]] = {"sync": sync, "countless": countless}
    obey = kinds[kind](*arguments)
    for line in sys.stdin:
        command, _, number = line.partition(" ")
        answer = obey(command.strip(), int(number or 0))
        if answer is not None:
            print(answer, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
