"""Comparisons of two checkouts, and what the house counts."""

from pathlib import Path

from bench.against import comparison
from bench.house import KINDS, SHORT_LINES, all_sources, classes_used_twice, importers, short_files, sources


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
    assert [str(file.path) for file in all_sources(tmp_path) if file not in files] == ["integrations/django.py"]


def test_no_class_has_the_name_of_another_one_but_for_twins() -> None:
    """Of ASGI and WSGI."""
    assert classes_used_twice(all_sources()) == [
        "CountRequests: asgi/count_requests.py, wsgi.py",
        "LimitRequests: asgi/limit_requests.py, wsgi.py",
    ]


def test_sessions_and_storage_import_no_kind() -> None:
    """But for the answers that a `Readable` with labels or values gives."""
    folders = [file for file in sources() if file.path.parts[:2] in {("server", "sessions"), ("server", "storage")}]
    assert len(folders) > 20
    found = {str(file.path): {name for name in file.imported if is_of_a_kind(name)} for file in folders}
    assert {path: names for path, names in found.items() if names} == {
        "server/sessions/readable.py": {"countless.core.family.answer", "countless.core.family.distribution"}
    }


def is_of_a_kind(module: str) -> bool:
    return any(word in module for word in (*KINDS.values(), ".kinds"))
