# Everything a fresh clone needs is GNU make and Python 3.11 or newer: each target makes .venv on first use.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
DIST ?= dist

# `make run` needs the package alone; everything else also needs the tools of development.
CORE := $(VENV)/.core-installed
DEV := $(VENV)/.dev-installed

.DEFAULT_GOAL := help
.PHONY: help run wheel test test-long check format bench clean test-tools

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(CORE) ## Start a node on 127.0.0.1 with its data in ./data (ARGS="--kafka 127.0.0.1:9192" for more)
	$(BIN)/headrace up --data data $(ARGS)

wheel: $(BIN)/python ## Build dist/headrace-VERSION-py3-none-any.whl, which pip installs anywhere
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(DIST) .
	@ls $(DIST)/headrace-*.whl

test: $(DEV) test-tools ## Run the tests (ARGS="tests/cli -k topic" for some of them)
	$(if $(ARGS),$(BIN)/pytest $(ARGS),$(BIN)/python -m tools.run_tests $(BIN)/pytest)

test-long: $(DEV) test-tools ## Run the tests in their long forms
	HEADRACE_LONG=1 $(BIN)/pytest -o timeout=1800 -o faulthandler_timeout=3600 $(ARGS)

check: $(DEV) ## Lint, formatting, types, and the rooms' import contract
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV) ## Format the code and fix what the linter can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(DEV) ## Run the benchmarks and print their figures
	$(BIN)/python -m benchmarks $(ARGS)

clean: ## Remove the virtual environment and the caches; the data directory stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# kcat is a program, not a Python package, so it cannot come with the virtual environment.
test-tools:
	@sh tools/install-test-tools.sh

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'headrace needs Python 3.11 or newer; say which with: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { rm -rf $(VENV); echo 'no virtual environment could be made; on Debian: apt-get install python3-venv' >&2; exit 1; }

$(CORE): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(CORE) $@
