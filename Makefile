# Everything a person runs. `make demo` and `make test` need only python3 (3.11+) and make.
PYTHON ?= python3
BIN := .venv/bin
export PYTHONHASHSEED := 0

.PHONY: setup check test demo bench race docs lock lint fast clean
setup: .venv/ready

.venv/ready: requirements/dev.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Countless needs Python 3.11 or newer, this is " + sys.version)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q .venv/lib || true
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fast: setup
	$(BIN)/python -m pytest -q -n 2 -m "not slow"

check: lint fast

test: lint
	requirements/system.sh
	$(BIN)/python -m pytest -q -n 2

demo: setup
	$(BIN)/python -m countless.cli.main demo

bench: setup
	$(BIN)/python -m bench

race: setup
	requirements/system.sh
	$(BIN)/python -m race --html dist/race.html --json dist/race.json

docs: setup
	$(BIN)/mkdocs build --strict

lock:
	uv pip compile --universal --generate-hashes --no-header --no-annotate --extra dev -o requirements/dev.txt pyproject.toml

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist site
