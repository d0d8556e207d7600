"""One process of the demo's fleet: several sites, each with its own connection.

    python -m countless_lab.demo.worker URL COUNTER FIRST NUMBER

It reads lines `[[site, events], ...]` from standard input, and prints a line when the coordinator has stored the
reports that they caused. At the end of the input its sites leave with exact counts.
"""

import json
import logging
import sys

from countless.client.client import Client, connect


def main(url: str, counter: str, first: str, number: str) -> None:
    logging.getLogger("countless").setLevel(logging.ERROR)  # every site would say that the coordinator was killed
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
