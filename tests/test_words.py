"""Sources, tests and docs use the field's ordinary words (docs/reference/glossary.md), not the former private ones."""

import re
from functools import cache
from pathlib import Path

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


SCANNED = ("src", "tests", "bench", "race", "docs", "design", "examples", "tools")
SUFFIXES = {".py", ".js", ".mjs", ".html", ".css", ".md", ".txt"}
LEFT_OUT = ("tests/test_words.py", "tests/client/durable/fixtures/README.md")  # this list; code of an earlier version
# A hold on a budget is settled: the word of payments, and a public name.
BUDGETS = re.compile(r"budget|docs/reference/(?:glossary\.md|python/)")


def old_words(text: str, path: str) -> list[str]:
    found = PATTERN.findall(ALLOWED.sub("", text))
    return [word for word in found if not (word.lower().startswith("settle") and BUDGETS.search(path))]


PHRASES = re.compile(r"last words?|straw[ -]?m[ae]n", re.IGNORECASE)


@cache
def is_old(word: str) -> bool:
    return PATTERN.match(word) is not None


def may_have_old_words(text: str) -> bool:
    """Each word once: to search all lines takes ten times as long, and almost no file has one."""
    return any(map(is_old, set(re.findall("[A-Za-z]+", text)))) or PHRASES.search(text) is not None


def test_old_words_are_found() -> None:
    for text in ("a Seat", "pace_of", "SeatTable", "no SPEC here", "its last words", "a straw-man"):
        assert may_have_old_words(text), text
        assert old_words(text, "x.py"), text
    for text in ("spaces", "a spec", "the last one", "unseated"):
        assert not may_have_old_words(text), text
        assert not old_words(text, "x.py"), text


def test_sources_tests_and_docs_use_no_old_words() -> None:
    lines = []
    for file in sorted(file for folder in SCANNED for file in (ROOT / folder).rglob("*")):
        path = file.relative_to(ROOT).as_posix()
        if file.suffix in SUFFIXES and path not in LEFT_OUT and not path.endswith(".min.js"):
            text = file.read_text(encoding="utf-8")
            for number, line in enumerate(text.splitlines() if may_have_old_words(text) else (), 1):
                lines += [f"{path}:{number}: {word!r} in: {line.strip()}" for word in old_words(line, path)]
    assert not lines, f"{len(lines)} old words; the glossary has the ordinary ones:\n" + "\n".join(lines[:40])
