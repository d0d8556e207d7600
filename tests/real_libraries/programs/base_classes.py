"""Compares the base classes of which `make test` has its own with those of the libraries."""

import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from integrations.base_classes import PLACES

for path, (name, ours) in PLACES.items():
    theirs = getattr(import_module(path), name)
    assert ours.__dict__.get("__abstractmethods__") == theirs.__dict__.get("__abstractmethods__"), path
    for method in vars(ours):
        if not method.startswith("_"):
            expected = [(each.name, each.kind) for each in signature(getattr(ours, method)).parameters.values()]
            found = [(each.name, each.kind) for each in signature(getattr(theirs, method)).parameters.values()]
            assert found == expected, (path, method, found)
    print(path)
