# `make serve` and `make test` need Python 3.11 or newer and make; each of them sets up what else it needs, once.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python -m
NODE_MODULES := course/browser/node_modules/.package-lock.json
export NO_MKDOCS_2_WARNING := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help serve test site build lint wheels clean

help:
	@echo "make serve   the course's site with live reload, on a free port of this machine"
	@echo "make test    every check and test"
	@echo "make site    the site as files, in site/"
	@echo "make wheels  the course's wheel for the browser's Python, in build/wheels/ (optional; Python 3.12 or newer)"
	@echo "make clean   delete what make has made"

serve: $(VENV)/site.stamp $(NODE_MODULES)
	@$(RUN) course.browser.serve

site: build
	@$(RUN) mkdocs build --strict --quiet

test: $(VENV)/test.stamp lint site
	@$(RUN) course.setup.chromium
	@$(RUN) pytest --numprocesses=auto --maxprocesses=4 --dist=worksteal

lint: $(VENV)/test.stamp $(NODE_MODULES)
	@$(RUN) ruff check
	@$(RUN) ruff format --check
	@$(RUN) mypy
	@$(RUN) course.setup.node npm --prefix course/browser run --silent check

build: $(VENV)/site.stamp $(NODE_MODULES)
	@$(RUN) course.browser.build

wheels: $(VENV)/site.stamp $(NODE_MODULES)
	@$(RUN) course.browser.wheels $(WHEELS)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: install it, or name it: make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "this Python cannot make a virtual environment (Debian, Ubuntu: apt-get install python3-venv)" >&2; rm -rf $(VENV); exit 2; }

$(VENV)/%.stamp: pyproject.toml course/setup/constraints.txt | $(BIN)/python
	@echo "installing the Python packages for '$*' (once)"
	@$(RUN) pip install --quiet --editable ".[site,$*]" --constraint course/setup/constraints.txt
	@touch $@

$(NODE_MODULES): course/browser/package.json course/browser/package-lock.json $(VENV)/site.stamp
	@echo "installing the front end's packages (once)"
	@$(RUN) course.setup.node npm --prefix course/browser ci --silent
	@touch $@

clean:
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache build/wheels site docs/assets/course course/browser/node_modules
