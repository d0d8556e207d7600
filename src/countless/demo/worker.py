"""One process of the demo's fleet: some of the sites, each with a connection of its own.

    python -m countless.demo.worker URL COUNTER FIRST NUMBER

It is told on standard input, line by line, what happens where: `[[site, events], ...]`, and answers with a line when
the coordinator has on its disk whatever was due because of it. At the end of its input it leaves with exact counts.
"""

import json
import sys

from countless.client.client import Client, connect


def main(url: str, counter: str, first: str, number: str) -> None:
    """Until the input ends."""
    clients: dict[int, Client] = {}
    for site in range(int(first), int(first) + int(number)):
        clients[site] = connect(url, site=f"site-{site:03}")
    print("ready", flush=True)
    for line in sys.stdin:
        events = json.loads(line)
        for site, n in events:
            clients[site].counter(counter).add(n)
        delivered = all(clients[site].flush(timeout=10.0) for site, _ in events)
        print("done" if delivered else "late", flush=True)
    for client in clients.values():
        client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
