# `make run` and `make test` need Python 3.11+, pip and make, nothing else: uv is fetched into .tools,
# the environment is made in .venv, and both are reused as long as the lock file does not change.
PYTHON ?= python3
UV := .tools/bin/uv
BIN := .venv/bin
MIN_COVERAGE_PERCENT := 65
export UV_PROJECT_ENVIRONMENT := .venv
export UV_NO_PROGRESS := 1
# Where it is set, every command compiles all that it imports, again and again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test test-fast test-phoenix coverage lint format bench docs audit lock clean install
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

run: install ## Serve REM on the embedded database with the sample workspace
	$(BIN)/rem demo
	$(BIN)/rem serve

test: install ## Run all tests
	$(BIN)/python -m pytest

test-fast: install ## Run the tests that start no process and need little of a database: about a minute
	$(BIN)/python -m pytest -m "not slow"

# Phoenix is large and needs other versions of some packages, so it gets an environment of its own.
PHOENIX := $(HOME)/.cache/rem-tests/phoenix
test-phoenix: install ## Run the tests of the Phoenix client against a real Phoenix server
	@test -x $(PHOENIX)/bin/phoenix || { $(UV) venv --quiet --python "$$(command -v $(PYTHON))" $(PHOENIX) && \
	  VIRTUAL_ENV=$(PHOENIX) $(UV) pip install --quiet arize-phoenix; }
	$(BIN)/python -m tooling.phoenix_tests $(PHOENIX)/bin/phoenix

coverage: install ## Run the fast tests, and fail if they cover too little of the code
	$(BIN)/python -m pytest -m "not slow" --cov --cov-report=term --cov-fail-under=$(MIN_COVERAGE_PERCENT)

lint: install ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/deptry src

format: install ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install ## Measure speed as ratios to bare baselines; JSON on standard output
	$(BIN)/python -m bench

docs: install ## Write docs/cli.md and docs/settings.md from the code
	$(BIN)/python -m rem.cli.command_reference > docs/cli.md
	$(BIN)/python -m rem.cli.settings_reference > docs/settings.md

audit: install ## Look for known vulnerabilities in the locked dependencies (AUDIT=--offline: only in our list)
	$(BIN)/python -m tooling.audit_dependencies $(AUDIT)

lock: $(UV) ## Resolve the dependencies anew
	$(UV) pip compile --quiet --universal --python-version 3.11 --all-extras --group dev --upgrade \
	  --override overrides.txt --no-header --no-emit-index-url --no-emit-find-links pyproject.toml -o requirements.lock

clean: ## Remove everything that make built (never your memories: they are under REM_HOME)
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build

install: .venv/.installed ## Make .venv with the rem command in it

# An environment of another Python than the one that was asked for (make PYTHON=python3.12 install) is made anew.
VERSION := import sys; print(sys.version_info[:2])
VENV_MODE := --allow-existing
ifneq ($(origin PYTHON),file)
ifneq ($(shell $(PYTHON) -c '$(VERSION)'),$(shell $(BIN)/python -c '$(VERSION)' 2>/dev/null))
VENV_MODE := --clear
.PHONY: .venv/.installed
endif
endif

.venv/.installed: requirements.lock pyproject.toml | $(UV)
	$(require_python)
	@$(UV) venv --quiet $(VENV_MODE) --python "$$(command -v $(PYTHON))" .venv
	@echo "Installing REM into .venv (once) ..."
	@VIRTUAL_ENV=.venv $(UV) pip sync --quiet requirements.lock
	@VIRTUAL_ENV=.venv $(UV) pip install --quiet --no-deps --editable .
	@touch $@

define require_python
@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 14) else f"REM needs Python 3.11 to 3.13, {sys.executable} is {v.major}.{v.minor}: run make PYTHON=python3.12 (or another)")'
endef

$(UV):
	$(require_python)
	@echo "Fetching uv into .tools (once) ..."
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --target .tools uv 2>.tools.log || { cat .tools.log; rm -f .tools.log; exit 1; }
	@rm -f .tools.log
