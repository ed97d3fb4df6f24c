# make demo    a job is rescued before your eyes; needs Python 3.11 or later, nothing else
# make check   the quick lane: style, types, walls, unit tests
# make test    everything; sets up what it needs
# PYTEST="-x -k name" is handed to pytest.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

VENV ?= .venv
PYTHON ?=
PYTEST ?=
BIN := $(VENV)/bin
export VENV PYTHON

.PHONY: help
help:
	@sed -n 's/^# \{0,1\}//p;/^$$/q' Makefile
	@echo "make bench   measures us beside other queue systems; figures in bench/README.md"
	@echo "make alerts  makes the alert rules and their table from templates and thresholds"
	@echo "make test-image  builds the image and tries it; as root on Debian"
	@echo "make lock    pins the dependencies anew (make lock UPGRADE=1: the newest of all)"
	@echo "make format  formats the code"
	@echo "make clean   removes what the tools leave behind, the virtual environment included"

.PHONY: demo
demo:
	@tools/venv demo
	@$(BIN)/unstuck demo $(ARGS)

.PHONY: setup
setup:
	@tools/setup-test
	@tools/venv test

.PHONY: lint
lint:
	@tools/venv test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini
	$(BIN)/lint-imports
	$(BIN)/shellcheck $$(grep -rlE '^#!.*\bbash$$' .ci tools bench deploy 2>/dev/null)

.PHONY: check
check: lint
	$(BIN)/python -m pytest tests/unit --quiet $(PYTEST)

.PHONY: test
test: setup lint
	$(BIN)/python -m pytest $(PYTEST)
	@if [[ $${CI:-} == true && $$(id -u) == 0 ]] && command -v apt-get >/dev/null; then $(MAKE) --no-print-directory test-image; fi

# The image, built without a container engine and looked at from all sides. Needs root on Debian; 3 to 6 minutes on two
# cores, half of it once per machine. CI runs it after `make test`; run it yourself when the Dockerfile, the run
# requirements, or the way in which the program starts and stops change.
.PHONY: test-image
test-image: setup
	@tools/build-image localhost/unstuck:test
	UNSTUCK_TEST_IMAGE=localhost/unstuck:test $(BIN)/python -m pytest tests/image -rP $(PYTEST)

.PHONY: bench
bench:
	@tools/venv test
	@bench/run $(ARGS)

.PHONY: alerts
alerts:
	@tools/venv test
	$(BIN)/python -m unstuck_exporters.rules alerts docs/alerts.md

.PHONY: lock
lock:
	@tools/venv dev
	PATH="$(CURDIR)/$(BIN):$$PATH" tools/lock $(if $(UPGRADE),--upgrade)

.PHONY: format
format:
	@tools/venv test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: clean
clean:
	rm -rf $(VENV) .venv-bench build dist .coverage .coverage.* htmlcov test-results
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
