# Everything runs from a virtual environment in $(VENV); `make` lists the targets.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# A process for every core, of one thread each: threads of several processes would be in each other's way.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install demo test test-slow test-processors check quick format docs benchmark clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.installed  ## make the environment, with the pinned versions

demo: $(VENV)/.installed-demo  ## two methods on the digits that come with the install, into runs/demo
	$(BIN)/uniot demo --out runs/demo

test: demo check  ## everything that must pass: demo, lint, types, the whole test suite
	$(PYTEST) -m "not processors"

test-slow: test-processors  ## what `make test` leaves out because it takes long

test-processors: install  ## the numerical tests again, computed as other processors do and with two threads
	$(BIN)/python tests/processors.py

check: install  ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

quick: install  ## the tests that take no more than a few seconds each
	$(PYTEST) -m "not slow"

format: install  ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-docs  ## build the documentation into site/; a broken link or a stale part is an error
	$(BIN)/python docs/make_method_tables.py --check
	$(BIN)/python docs/make_architecture.py --check
	$(BIN)/mkdocs build --strict

benchmark: install  ## time the transport solvers against other libraries
	$(PIP) install --quiet -c constraints.txt -r benchmarks/requirements.txt
	$(BIN)/python benchmarks/transport.py

clean:  ## remove the environment, the runs and everything built
	rm -rf $(VENV) runs site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# What the demo needs, without the tools of developers.
$(VENV)/.installed-demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet -c constraints.txt -e '.[report]'
	touch $@

$(VENV)/.installed: $(VENV)/.installed-demo
	$(PIP) install --quiet -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) install --quiet -c constraints.txt -e '.[docs]'
	touch $@
