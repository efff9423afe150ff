# `make run` and `make test` need Python 3.11+, pip and make, nothing else: uv is fetched into .tools,
# the environment is made in $(VENV), and both are reused as long as the lock file does not change.
PYTHON ?= python3
UV := .tools/bin/uv
VENV := .venv
BIN := $(VENV)/bin
MIN_COVERAGE_PERCENT := 62
export UV_PROJECT_ENVIRONMENT := $(VENV)
export UV_NO_PROGRESS := 1
# Where it is set, every command compiles all that it imports, again and again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test test-failed test-fast test-partitioned test-python test-web test-phoenix test-deployment load coverage \
  coverage-all lint format bench docs audit lock images clean install web web-check web-types
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

run: install ## Serve REM on the embedded database with the sample workspace
	$(BIN)/rem demo
	$(BIN)/rem serve

test: install ## Run all tests
	$(BIN)/python -m pytest

# `--last-failed-no-failures none`: a run that ended before any test did has nothing to run again, and fails here, too.
test-failed: install ## Run the tests again that failed in the last run, one after the other
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none -n 0 $(OPTIONS)

test-fast: install ## Run the tests that start no process and need little of a database: about two minutes
	$(BIN)/python -m pytest -m "not slow"

# The folders whose tests read and write the large tables.
PARTITIONED := tests/db tests/query tests/search tests/forget tests/dreams
test-partitioned: install ## Run the tests of the memory on tables with partitions (TESTS=tests/db)
	REM_TEST_PARTITIONS=16 $(BIN)/python -m pytest $(or $(TESTS),$(PARTITIONED))

# Pythons that pyenv has installed and not activated are found, too.
test-python: $(UV) ## Run the fast tests with another Python, in an environment of its own (VERSION=3.13)
	@test -n "$(VERSION)" || { echo "Name a version: make test-python VERSION=3.13"; exit 1; }
	@pyenv=$$(echo $(HOME)/.pyenv/versions/$(VERSION).*/bin | tr ' ' ':'); \
	python=$$(PATH="$$pyenv:$$PATH" $(UV) python find $(VERSION) 2>/dev/null) || \
	  { echo "There is no Python $(VERSION) here: install it first (.tools/bin/uv python install $(VERSION))"; exit 1; }; \
	$(MAKE) --no-print-directory VENV=.venv-$(VERSION) PYTHON=$$python test-fast

test-web: install web/node_modules/.installed ## Run the tests of the web interface in Chromium (TESTS=tests/web/test_chat.py)
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -qq -y chromium; } || \
	  { echo "These tests need Chromium: sudo apt-get install chromium"; exit 1; }
	$(BIN)/python -m pytest -m web -n 0 $(or $(TESTS),tests/web)

# Phoenix is large and needs other versions of some packages, so it gets an environment of its own.
PHOENIX := $(HOME)/.cache/rem-tests/phoenix
test-phoenix: install ## Run the tests of the Phoenix client against a real Phoenix server
	@test -x $(PHOENIX)/bin/phoenix || { $(UV) venv --quiet --python "$$(command -v $(PYTHON))" $(PHOENIX) && \
	  VIRTUAL_ENV=$(PHOENIX) $(UV) pip install --quiet arize-phoenix; }
	$(BIN)/python -m tooling.phoenix_tests $(PHOENIX)/bin/phoenix

test-deployment: install ## Run the tests of deployments that need PgBouncer, too
	@test -x /usr/sbin/pgbouncer || command -v pgbouncer >/dev/null || \
	  { test "$$(id -u)" = 0 && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y pgbouncer; } || \
	  { echo "These tests need PgBouncer: sudo apt-get install pgbouncer"; exit 1; }
	$(BIN)/python -m pytest -m "deployment or not deployment" -n 0 $(or $(TESTS),tests/deployment)

# Locust brings many packages that REM does not need, so it gets an environment of its own.
LOCUST := $(HOME)/.cache/rem-tests/locust
load: install ## Serve mixed traffic with 1, 2 and 4 processes; JSON on standard output (LOAD=--quick: a few seconds)
	@test -x $(LOCUST)/bin/locust || { $(UV) venv --quiet --python "$$(command -v $(PYTHON))" $(LOCUST) && \
	  VIRTUAL_ENV=$(LOCUST) $(UV) pip install --quiet locust; }
	$(BIN)/python -m bench.load --locust $(LOCUST)/bin/locust $(LOAD)

coverage: install ## Run the fast tests, and fail if they cover too little of the code
	$(BIN)/python -m pytest -m "not slow" --cov --cov-report=term --cov-fail-under=$(MIN_COVERAGE_PERCENT)

coverage-all: install ## Run all tests, and list what neither they nor the processes that they start run (half an hour)
	$(BIN)/python -m pytest --cov --cov-report=term-missing

lint: install ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/deptry src
	$(BIN)/deptry bench --ignore DEP002,DEP004  # it may use the dependencies for development

format: install ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install ## Measure speed as ratios to bare baselines; JSON on standard output
	$(BIN)/python -m bench

web: install web-types web/node_modules/.installed ## Build the web interface into src/rem/api/web_dist (needs Node 20)
	cd web && npm run --silent build
	$(BIN)/python -m tooling.web_manifest

web-check: install web/node_modules/.installed ## Build the web interface elsewhere, and fail if the committed build differs
	cd web && WEB_OUT=.build-check npm run --silent build
	diff -r --exclude sources.sha256 web/.build-check src/rem/api/web_dist
	rm -r web/.build-check

web-types: install ## Write web/src/api/types.ts from the server's OpenAPI document
	$(BIN)/python -m tooling.api_types

# Not `npm ci`: the lock file has the native parts of one platform only, which `npm ci` refuses.
web/node_modules/.installed: web/package-lock.json
	@command -v npm >/dev/null || { echo "This needs Node 20 or later and npm: https://nodejs.org"; exit 1; }
	cd web && npm install --no-save --silent
	@touch $@

docs: install web-types ## Write docs/cli.md, docs/settings.md and the types of the API from the code
	$(BIN)/python -m tooling.command_reference > docs/cli.md
	$(BIN)/python -m tooling.settings_reference > docs/settings.md

audit: install ## Look for known vulnerabilities in the locked dependencies (AUDIT=--offline: only in our list)
	$(BIN)/python -m tooling.audit_dependencies $(AUDIT)

# The hashes are of the files for all platforms. The image has its own list, with the same versions, because pip demands
# a hash for each name in the list that it installs.
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --override overrides.txt \
  --no-header --no-emit-index-url --no-emit-find-links pyproject.toml
IMAGE_EXTRAS := ingest metrics otel s3
lock: $(UV) ## Resolve the dependencies anew
	$(COMPILE) --all-extras --group dev --group build --upgrade -o requirements.lock
	$(COMPILE) $(IMAGE_EXTRAS:%=--extra %) --group build --constraint requirements.lock -o requirements-image.lock

PINNED := Dockerfile compose.yaml manifests/database/cluster.yaml manifests/telemetry/collector.yaml
images: ## Pin the images of containers to what their tags name now (needs Docker)
	@for image in $$(grep -hoE '[a-z0-9./-]+:[A-Za-z0-9._-]+@sha256:[0-9a-f]{64}' $(PINNED) | sort -u); do \
	  digest=$$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$${image%@*}") || exit 1; \
	  for file in $(PINNED); do sed "s|$$image|$${image%@*}@$$digest|" $$file > $$file.new && mv $$file.new $$file; done; \
	  echo "$${image%@*} $$digest"; \
	done

clean: ## Remove everything that make built (never your memories: they are under REM_HOME)
	rm -rf .venv .venv-* .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* dist build web/node_modules web/.build-check

install: $(VENV)/.installed ## Make .venv with the rem command in it

# An environment of another Python than the one that was asked for (make PYTHON=python3.12 install) is made anew.
PRINT_VERSION := import sys; print(sys.version_info[:2])
VENV_MODE := --allow-existing
ifneq ($(origin PYTHON),file)
ifneq ($(shell $(PYTHON) -c '$(PRINT_VERSION)'),$(shell $(BIN)/python -c '$(PRINT_VERSION)' 2>/dev/null))
VENV_MODE := --clear
.PHONY: $(VENV)/.installed
endif
endif

$(VENV)/.installed: requirements.lock pyproject.toml | $(UV)
	$(require_python)
	@$(UV) venv --quiet $(VENV_MODE) --python "$$(command -v $(PYTHON))" $(VENV)
	@echo "Installing REM into $(VENV) (once) ..."
	@VIRTUAL_ENV=$(VENV) $(UV) pip sync --quiet --require-hashes requirements.lock
	@VIRTUAL_ENV=$(VENV) $(UV) pip install --quiet --no-deps --editable .
	@touch $@

define require_python
@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 14) else f"REM needs Python 3.11 to 3.13, {sys.executable} is {v.major}.{v.minor}: run make PYTHON=python3.12 (or another)")'
endef

$(UV):
	$(require_python)
	@echo "Fetching uv into .tools (once) ..."
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --target .tools uv 2>.tools.log || { cat .tools.log; rm -f .tools.log; exit 1; }
	@rm -f .tools.log
