"""Names in the code are the field's ordinary words (docs/reference/glossary.md), and no text uses our old allegory."""

import ast
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]

# No text has these.
ALLEGORY = (
    r"rebirth|reborn|newborn|heirs?|bury|buries|buried|graves?|last words?|farewells?|doomed|whispers?|overhears?"
    r"|overheard|seats?|seated|repaced?|leagues?|filmed|straw[ -]?m[ae]n|storms?|weathers?"
)
# No name has these: the words to use instead.
NAMES = {
    r"life|lives": "incarnation, session",
    r"talks?|voices?|conversations?|speaks?|spoke|spoken": "session, send, report",
    r"hears?|heard": "receive, last_seen",
    r"loud|silence[sd]?": "exact_below, unreachable",
    r"wakes?|waking|woken": "recover, start",
    r"paces?|cues?": "trigger",
    r"publishers?|consequences?": "estimator, effect",
    r"dice|die": "random source, random numbers",
    r"mail|billed|gathered": "outbox, traffic, batch",
    r"patien(?:t|ce)|impatient": "may_block, timeout",
    r"calm": "fault phase",
    r"films?": "recording",
    r"said|news": "verdict, matches",
    r"face": "role",
    r"whoever|nobody|somebody|everybody|anybody": "name the subject",
}
PUBLIC = {"seconds_since_heard", "_wake"}  # a field of the HTTP API; a method of the websockets library

# Names are split at underscores and humps: `pace_of` and `SeatTable` have old words, `spaces` has none.
_NOT_A_NAME = re.compile(rf"(?<![a-zA-Z])(?i:{'|'.join([*NAMES, ALLEGORY])})(?![a-z])")
_NOT_A_WORD = re.compile(rf"(?<![a-zA-Z])(?i:{ALLEGORY})(?![a-z])|\bSPEC\b")

SCANNED = ("src", "tests", "bench", "race", "docs", "design", "examples", "tools", "README.md", "CONTRIBUTING.md")
SUFFIXES = {".py", ".js", ".mjs", ".html", ".css", ".md", ".txt"}


def old_words(text: str) -> list[str]:
    return _NOT_A_WORD.findall(text)


def is_old_name(name: str) -> bool:
    return name not in PUBLIC and _NOT_A_NAME.search(name.replace("HEARTBEAT", "")) is not None


def files() -> list[Path]:
    found = [ROOT / each for each in SCANNED]
    found = [file for each in found for file in ([each] if each.is_file() else each.rglob("*"))]
    return sorted(file for file in found if file.suffix in SUFFIXES and not file.name.endswith(".min.js"))


def test_old_words_are_found() -> None:
    for text in ("a Seat", "SeatTable", "no SPEC here", "its last words", "a straw-man"):
        assert old_words(text), text
    for name in ("pace_of", "SeatTable", "site_voice", "Nobody"):
        assert is_old_name(name), name
    for text in ("spaces", "a spec", "the last one", "unseated", "nobody waits for it"):
        assert not old_words(text), text
    assert not is_old_name("spaces_of")


def test_no_text_has_the_old_allegory() -> None:
    found = []
    for file in files():
        if file == Path(__file__):
            continue
        text = file.read_text(encoding="utf-8")
        if old_words(text):
            lines = enumerate(text.splitlines(), 1)
            found += [
                f"{file.relative_to(ROOT)}:{number}: {word}" for number, line in lines for word in old_words(line)
            ]
    assert not found, "the glossary has the ordinary words:\n" + "\n".join(found[:40])


def test_names_are_ordinary_words() -> None:
    found = []
    for file in files():
        if file.suffix != ".py" or not _NOT_A_NAME.search(file.read_text(encoding="utf-8")):
            continue
        with file.open("rb") as source:
            names = (
                (token.string, token.start[0])
                for token in tokenize.tokenize(source.readline)
                if token.type == tokenize.NAME
            )
            found += [f"{file.relative_to(ROOT)}:{line}: {name}" for name, line in names if is_old_name(name)]
    assert not found, f"use the words of {NAMES}:\n" + "\n".join(found[:40])


# Docstrings are imperatives or noun phrases: "The keys ...", "Return ...", "True if ...".
_CLAUSE = re.compile(r"(What|Whether|How|Which|Who|When|Where|Why|Of|Also)\b")


def clauses(tree: ast.AST) -> list[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented))
    return [doc.splitlines()[0] for doc in docs if doc and _CLAUSE.match(doc)]


def test_docstrings_that_are_clauses_are_found() -> None:
    for doc in ("What is kept.", "Whether it is open.", "Of the current window."):
        assert clauses(ast.parse(f'def f():\n    """{doc}"""')) == [doc]
    assert clauses(ast.parse('"""However it ends."""\ndef f():\n    """True if it is open."""')) == []


def test_no_docstring_is_a_clause() -> None:
    found = []
    for folder in ("src/countless", "lab/src", "simulator"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            name = file.relative_to(ROOT / folder).as_posix()
            found += [f"{name}: {line}" for line in clauses(ast.parse(file.read_text(encoding="utf-8")))]
    assert not found, "write an imperative or a noun phrase:\n" + "\n".join(found[:40])
