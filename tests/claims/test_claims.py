"""design/claims.md is complete: every claim has its parts, and every file, test and claim number named exists."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS = ("certain", "with probability 1 - delta", "privacy", "tested only")
PARTS = ("Statement", "Assumptions", "Proof", "Code", "Test")
TEXT = (ROOT / "design" / "claims.md").read_text()
CLAIMS = {
    int(match["number"]): match["body"]
    for match in re.finditer(r"^### C(?P<number>\d+) .*?\n(?P<body>.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
}


def part(body: str, name: str) -> str:
    match = re.search(rf"^- \*\*{name}\.\*\*\s+(.*?)(?=^- \*\*|\Z)", body, re.MULTILINE | re.DOTALL)
    return match[1].strip() if match else ""


def test_claim_numbers_are_unique_and_contiguous() -> None:
    numbers = sorted(map(int, re.findall(r"^### C(\d+) ", TEXT, re.MULTILINE)))
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("number", sorted(CLAIMS))
def test_every_claim_has_its_parts(number: int) -> None:
    for name in PARTS:
        assert part(CLAIMS[number], name), f"C{number} has no {name}"


def kinds(body: str) -> list[str]:
    return re.findall(r"^- \*\*Kind\.\*\* \*(.*)\*$", body, re.MULTILINE)


@pytest.mark.parametrize("number", sorted(CLAIMS))
def test_every_claim_is_of_one_kind(number: int) -> None:
    found = kinds(CLAIMS[number])
    assert len(found) == CLAIMS[number].count("**Kind.**") == 1, f"C{number} is of the kinds {found}"
    assert found[0] in KINDS


def test_table_of_kinds_has_their_numbers() -> None:
    stated = {kind: int(n) for kind, n in re.findall(r"^\| \*(.+?)\* \| (\d+) \| ", TEXT, re.MULTILINE)}
    counted = Counter(kinds(body)[0] for body in CLAIMS.values())
    assert stated == {kind: counted[kind] for kind in KINDS}


@pytest.mark.parametrize("number", sorted(CLAIMS))
def test_claim_that_has_no_proof_is_not_called_certain(number: int) -> None:
    proof = part(CLAIMS[number], "Proof")
    if kinds(CLAIMS[number]) != ["tested only"]:
        assert "execution of the test" not in proof, f"C{number} is proved by its test only"
        assert "no proof covers all" not in proof


@pytest.mark.parametrize("number", sorted(CLAIMS))
def test_code_and_tests_of_every_claim_exist(number: int) -> None:
    for path in re.findall(r"`((?:src|lab|tests|docs|design|bench|examples)/[^`:]+)", CLAIMS[number]):
        assert (ROOT / path).exists(), f"C{number} names {path}, which does not exist"
    tests = re.findall(r"`((?:lab/)?tests/[^`]+?)::(\w+)`", part(CLAIMS[number], "Test"))
    assert tests, f"C{number} names no test"
    for path, name in tests:
        assert re.search(rf"\b(def|class) {name}\b", (ROOT / path).read_text()), f"C{number}: no {name} in {path}"


def test_every_failure_of_a_budget_has_a_test() -> None:
    rows = (ROOT / "design" / "proofs" / "budgets.md").read_text().partition("## 9. Failures")[2].partition("##")[0]
    tests = re.findall(r" `(\w+\.py)::(\w+)` \|$", rows, re.MULTILINE)
    assert len(tests) == rows.count("\n|") - 2
    for path, name in tests:
        assert f"def {name}(" in (ROOT / "tests" / "server" / path).read_text(), f"no {name} in {path}"


@pytest.mark.parametrize("number", sorted(CLAIMS))
def test_names_in_the_code_of_every_claim_exist(number: int) -> None:
    for path, name in re.findall(r"`((?:lab/)?src/[^`]+\.py)`\s+\(`([\w.]+)`\)", part(CLAIMS[number], "Code")):
        for each in name.split("."):
            assert re.search(rf"\b(def|class) {each}\b", (ROOT / path).read_text()), f"C{number}: no {each} in {path}"


def test_claims_mentioned_in_code_and_tests_exist() -> None:
    for folder in ("src", "lab", "simulator", "tests", "bench"):
        for path in (ROOT / folder).rglob("*.py"):
            for number in re.findall(r"\b[Cc]laim C(\d+)\b", path.read_text()):
                assert int(number) in CLAIMS, f"{path} mentions claim C{number}, which is not in design/claims.md"


def test_corrections_named_by_claims_are_rows_of_the_table() -> None:
    page = (ROOT / "design" / "proofs" / "partial-dp.md").read_text()
    rows = [int(number) for number in re.findall(r"^\| (\d+) \| ", page, re.MULTILINE)]
    assert rows == list(range(1, len(rows) + 1))
    named = re.findall(r"\[Corrections? ([\d, ]+)\]\(proofs/partial-dp\.md#corrections", TEXT)
    assert len(named) >= 12
    for numbers in named:
        assert set(map(int, numbers.split(","))) <= set(rows)
