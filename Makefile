# Every target sets up what it needs; on a fresh machine that is Python 3.11 or newer, make, and the package index.
#   make PYTHON=/path/to/python3.12 test     with a Python of your choice

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := train,faiss,tensorboard,matlab,backbones,onnx,tune,dev
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)

.PHONY: help demo test test-all lint bench clean

help: ## say what each target does
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)$$/make \1	\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(STAMP) ## train five silos together, compare, index, search and write a report
	$(BIN)/silohash demo

test: $(STAMP) ## run the tests; each takes less than a minute
	$(BIN)/python -m pytest

test-all: $(STAMP) ## run every test, the slow ones too
	$(BIN)/python -m pytest -m "slow or not slow" --timeout=1800

lint: $(STAMP) ## check style, types, the direction of imports and the documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/unit/test_layout.py tests/docs

bench: $(STAMP) ## measure each claim of speed; prints ratios
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

clean: ## remove what the other targets made: .venv, caches, built packages
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks build dist
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(BIN)/python:
	@python="$(PYTHON)"; "$${python:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "silohash needs Python 3.11 or newer; found $$("$${python:-python3}" --version 2>&1 || true)." \
			"Install one, or name it: make PYTHON=/path/to/python3.12 test" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); \
		echo "The virtual environment could not be made. On Debian: apt-get install python3-venv" >&2; exit 1; }

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[$(EXTRAS)]'
	@touch $@
