# Each target installs what it needs into .venv. A fresh machine must have make, Python 3.11 or newer, and a package index.
#   make PYTHON=/path/to/python3.12 test     use a certain Python
#   make WORKERS=2 test                      use two test processes instead of one per core

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := train,faiss,pandas,tensorboard,matlab,backbones,onnx,tune,service,training,encryption,privacy,pgvector,milvus,dev
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)

# Python keeps what it compiled, even where the shell forbids it: collecting the tests takes twice as long without.
unexport PYTHONDONTWRITEBYTECODE

# Tests run in one process per core; the tests of a file stay together, so that they share what they set up. The order of the
# files is that of tests/conftest.py.
WORKERS ?= auto
PARALLEL := -n $(WORKERS) --maxprocesses 8 --dist loadfile --no-loadscope-reorder
# make COVERAGE=yes test measures which branches of the package the tests take.
COVERAGE ?=
MEASURED := $(if $(COVERAGE),--cov --cov-report=term --cov-report=json:.coverage.json)

.PHONY: help demo test test-fast test-slow test-all coverage mutation lint bench studies page-with-studies clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)$$/make \1	\2/p' $(MAKEFILE_LIST) | expand -t 18

# make SERVE=1 demo opens the search page over the demo's silos when it is done. PORT=N chooses its port, 8765 by default.
SERVE ?=
PORT ?=
demo: $(STAMP) ## train five silos together, compare, index, search and write a report
	exec $(BIN)/silohash demo $(if $(SERVE),--serve $(if $(PORT),--port $(PORT)))

test: $(STAMP) ## run all tests but the slow ones; minutes on two cores
	$(BIN)/python -m pytest $(PARALLEL) $(MEASURED)

test-fast: $(STAMP) ## run the unit tests that train nothing; less than a minute on two cores
	$(BIN)/python -m pytest $(PARALLEL) -m "not (slow or whole_run or shared_data)" tests/unit tests/docs

# make SLOW="tests/contract tests/parity" test-slow runs those of some folders.
SLOW ?= tests
test-slow: $(STAMP) ## run the tests that make test leaves out
	$(BIN)/python -m pytest $(PARALLEL) -m slow --timeout=1800 $(SLOW)

test-all: $(STAMP) ## run every test, including the slow ones, with more examples of each property
	$(BIN)/python -m pytest $(PARALLEL) -m "slow or not slow" --timeout=1800 --hypothesis-profile=thorough

coverage: ## run the tests, then print the covered share of lines and branches per file
	$(MAKE) COVERAGE=yes test

mutation: $(STAMP) ## change operators and constants at random, and print which changes the tests miss
	$(BIN)/python tests/mutation.py

lint: $(STAMP) ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP) ## measure each claim of speed, and print ratios
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

# make PAGE=fedbignn studies runs the studies among recipes/fedbignn.toml and recipes/fedbignn-*.toml, and stops at one that
# fails. OPTIONS="--smoke" is passed to each.
PAGE ?=
OPTIONS ?=
STUDIES = $(shell grep -ls '^\[\[axis\]\]' recipes/$(PAGE).toml recipes/$(PAGE)-*.toml)
studies: page-with-studies $(STAMP) ## run every study of a page of papers, as in make PAGE=fedbignn studies; hours
	@for file in $(STUDIES); do \
		echo "== $$file"; $(BIN)/silohash study "$$file" --out "studies/$$(basename "$$file" .toml)" $(OPTIONS) || exit; done

page-with-studies:
	@test -n "$(STUDIES)" || { echo "Name a page that has studies, as in: make PAGE=fedbignn studies" >&2; exit 1; }

clean: ## remove what the other targets created: .venv, caches, built packages
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks .coverage .coverage.* build dist
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(BIN)/python:
	@python="$(PYTHON)"; "$${python:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "silohash needs Python 3.11 or newer; found $$("$${python:-python3}" --version 2>&1 || true)." \
			"Install one, or give its path: make PYTHON=/path/to/python3.12 test" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); \
		echo "The virtual environment could not be created. On Debian: apt-get install python3-venv" >&2; exit 1; }

# The build backends come first: hatchling builds the package, and setuptools one that NVIDIA FLARE needs in source form
# only; the setuptools of a new virtual environment may be too old for it.
$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables setuptools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[$(EXTRAS)]'
	@touch $@
