"""`countless counters`: all counters of a coordinator."""

import json

from countless.cli.options import DEFAULT_URL, Json, Token, Url
from countless.client.answers import parse_total
from countless.client.api import ApiClient

EXAMPLE = "Example:  countless counters --json"


def counters(url: Url = DEFAULT_URL, token: Token = None, as_json: Json = False) -> None:
    """List the counters with their answers."""
    answers = list(ApiClient(url, token).counters())
    if as_json:
        print(json.dumps(answers))
        return
    if not answers:
        print("no counters: nothing was counted yet")
    for answer in answers:
        print(parse_total(answer))
