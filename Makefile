# Everything runs from a virtual environment in $(VENV); `make` lists the targets.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The pip that comes with Python may be years old; a new one needs half the time. Modules are compiled when they are first
# imported: of the thousands that are installed, few ever are.
INSTALL := $(PIP) install --quiet --no-compile -c constraints.txt
# Bytecode is kept, whatever the environment says: without it every process compiles the libraries again.
export PYTHONDONTWRITEBYTECODE :=
# A process for every core, of one thread each: threads of several processes would be in each other's way.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install demo test test-slow test-processors check quick format new-method docs gallery benchmark clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.installed  ## make the environment, with the pinned versions

demo: $(VENV)/.installed-demo  ## two methods on the digits that come with the install, into runs/demo
	$(BIN)/uniot demo --out runs/demo

test: check  ## what every change must pass: the demo, lint, types, the tests that are not slow
	$(MAKE) demo
	$(PYTEST) --dist worksteal -m "not slow"

# The property tests are run again, with all of their examples. One process takes a whole file: two would each make the
# wheel, the cluster or the trained network that its tests share.
test-slow: install  ## what `make test` leaves out: whole installs, killed processes, every combination
	UNIOT_TEST_TIER=slow $(PYTEST) --dist loadfile -m "slow or hypothesis"

test-processors: install  ## before a release: all numerical tests as other processors compute, and with two threads
	$(BIN)/python tests/processors.py

check: install  ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

quick: install  ## while you work: the tests that take less than half a second each
	$(PYTEST) --dist worksteal -m "not slow and not medium and not browser"

format: install  ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

new-method: install  ## NAME=my-method: write the file, the page and the test of a new method
	$(BIN)/python docs/new_method.py $(NAME)

docs: $(VENV)/.installed-docs  ## build the documentation into site/; a broken link or a stale part is an error
	$(BIN)/python docs/make_method_tables.py --check
	$(BIN)/python docs/make_architecture.py --check
	$(BIN)/mkdocs build --strict

gallery: install  ## execute the scripts of examples/gallery and write their pages; up to 12 minutes
	$(BIN)/python docs/make_gallery.py

benchmark: install  ## time the transport solvers against other libraries
	$(INSTALL) -r benchmarks/requirements.txt
	$(BIN)/python benchmarks/transport.py

clean:  ## remove the environment, the runs and everything built
	rm -rf $(VENV) runs site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# What the demo needs, without the tools of developers.
$(VENV)/.installed-demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade pip
	$(INSTALL) -e '.[report]'
	touch $@

# Whoever has this has what the demo needs.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade pip
	$(INSTALL) -e '.[dev]'
	touch $(VENV)/.installed-demo $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(INSTALL) -e '.[docs]'
	touch $@
