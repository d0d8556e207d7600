"""Comparisons of two checkouts, and what the house counts."""

from pathlib import Path

from bench.against import comparison
from bench.house import SHORT_LINES, classes_used_twice, importers, short_files, sources


def test_comparison_has_the_median_of_what_both_measure() -> None:
    runs = [({"a": there, "old": 1.0}, {"a": here, "new": 1.0}) for there, here in ((2.0, 3.0), (4.0, 9.0), (4.0, 6.0))]
    title, line = comparison("0123456789abcdef", runs).splitlines()
    assert title.split() == ["median", "of", "3", "0123456789ab", "here", "ratio"]
    assert line.split() == ["a", "4.00", "6.00", "1.50"]


def test_house_counts_short_files_importers_and_repeated_names(tmp_path: Path) -> None:
    texts = {
        "core/family/messages.py": "class State: ...\nfrom countless.core.family.rule import Rule\n",
        "core/state.py": "class State: ...\nclass _Own: ...\nfrom countless.planning.failure_budget import spend\n",
        "server/site_server.py": "from countless.server.sessions.families import Families\n" * SHORT_LINES,
        "planning/plan.py": "import countless.core.family.rule\n",
        "cli/main.py": "import countless.core.budget.rule\n",
        "integrations/django.py": "class State: ...\n",
        "core/__init__.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    files = sources(tmp_path)
    assert sum(file.lines for file in files) == 2 + 3 + SHORT_LINES + 1 + 1
    assert short_files(files) == ["core/family/messages.py 2", "core/state.py 3", "planning/plan.py 1"]
    assert importers(files, "famil") == ["server/site_server.py"]
    assert importers(files, "budget") == []
    assert classes_used_twice(files) == ["State: core/family/messages.py, core/state.py"]
