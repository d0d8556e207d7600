"""The sources use the field's ordinary words (docs/reference/glossary.md), not the private ones they once had."""

import re
from pathlib import Path

import countless

PACKAGE = Path(countless.__file__).parent
ROOT = Path(__file__).parents[1]

# Each line: words that must not come back, and the word to use instead.
OLD_WORDS = {
    r"life|lives|rebirth|reborn|newborn": "incarnation, session",
    r"bury|buries|buried|graves?": "retire, tombstone",
    r"heirs?|last words?": "recovery of orphaned state, final snapshot",
    r"talks?|voices?|conversations?|speaks?|spoke|spoken|whispers?": "session, send, report",
    r"hears?|heard|overhears?|overheard": "receive, last_seen",
    r"loud|silence[sd]?|fall(?:s|en)? silent": "exact_below, unreachable",
    r"wakes?|waking|woken": "recover, start",
    r"paces?|repaced?|cues?": "trigger",
    r"publishers?|consequences?": "estimator, effect",
    r"dice|die": "random source, random numbers",
    r"seats?|seated": "slot, member",
    r"mail|billed|gathered": "outbox, traffic, batch",
    r"patien(?:t|ce)|impatient": "may_block, timeout",
    r"weathers?|storms?|calm": "fault profile, fault phase",
    r"straw[ -]?m[ae]n|leagues?|films?|filmed": "negative control, tournament, recording",
    r"farewells?|said|news|doomed": "final snapshot, verdict, matches",
    r"face": "role",
    r"whoever|nobody|somebody|everybody|anybody": "name the subject",
    r"SPEC": "a page of docs/",
}
# Public names that keep an old word (settings, JSON fields, command-line flags), or the ordinary meaning of a word.
ALLOWED = re.compile(
    r"silent_after|silent-after|Answer\.silent|\bsilent\b"  # a setting, a flag, a field of an answer
    r"|seconds_since_heard|numbers\[\"league\"\]"  # fields of the HTTP API and of report.json
    r"|inherit(?:ed|s)?\b"  # CSS, file descriptors, classes
    r"|_wake\b|Waking a thread|HEARTBEATS?"
)


# Identifiers are split at underscores and humps: `pace_of` and `SeatTable` have old words, `spaces` has not.
PATTERN = re.compile(
    rf"(?<![a-zA-Z])(?i:{'|'.join(words for words in OLD_WORDS if words != 'SPEC')})(?![a-z])|\bSPEC\b"
)


def old_words(text: str) -> list[str]:
    return PATTERN.findall(ALLOWED.sub("", text))


def test_sources_use_no_old_words() -> None:
    lines = []
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in {".py", ".js", ".html", ".css"} and not path.name.endswith(".min.js"):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                lines += [f"{path.relative_to(ROOT)}:{number}: {word!r} in: {line.strip()}" for word in old_words(line)]
    assert not lines, f"{len(lines)} old words; the glossary has the ordinary ones:\n" + "\n".join(lines[:40])
