# `make demo` sets up and runs the main job; `make test` sets up and runs the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_TO_DEPLOY := $(VENV)/.ready-to-deploy
READY_TO_BROWSE := $(VENV)/.ready-to-browse
READY_FOR_DOCS := $(VENV)/.ready-for-docs
WITH_TRITON := $(VENV)/with-triton

.PHONY: help setup docs demo test coverage test-arithmetic test-compiled test-deploy test-deploy-all test-browser test-examples test-kernels test-readme package check format bench clean

help: ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

setup: $(READY) ## a virtual environment with everything in it

# torch goes in first, at its pinned version: asked for as a range it may bring CUDA with it.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(READY) ## the main job on embedded data: who is better off than alone?
	$(BIN)/glocal compare

test: $(READY) ## all tests but the slow groups, on all cores
	$(BIN)/python -m pytest -n auto --dist worksteal

coverage: $(READY) ## the same, and which lines they did not reach
	$(BIN)/python -m pytest -n auto --dist worksteal --cov --cov-report=term

test-compiled: $(READY) ## what compiles steps, every method among it; needs a C++ compiler
	$(BIN)/python -m pytest -n auto --dist worksteal -m slow tests/engines

test-examples: $(READY) ## the examples that take more than a second
	$(BIN)/python -m pytest -n auto --dist worksteal -m examples tests/test_examples.py

# Beside the environment and not in it: torch for a CPU has no Triton, and looks for it. Its
# interpreter does not know NumPy 2.4.
$(WITH_TRITON): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@ triton==3.6.0 numpy==2.3.5

test-kernels: $(WITH_TRITON) ## programs for a GPU, by an interpreter on a CPU
	PYTHONPATH=$(WITH_TRITON) TRITON_INTERPRET=1 $(BIN)/python -m pytest -n auto --dist worksteal -m kernels tests/kernels

test-readme: $(READY) ## what README.md shows of make demo, run again
	$(BIN)/python tools/readme.py --check

package: $(READY) ## sdist and wheel into dist/, looked into, and the wheel used in an empty environment
	$(BIN)/python tools/package.py

$(READY_TO_DEPLOY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[flower,ray]"
	@touch $@

test-deploy: $(READY_TO_DEPLOY) ## between machines: every method, refusals, killed processes over Flower
	$(BIN)/python -m pytest -n auto --dist worksteal -m deploy tests/deploy

test-deploy-all: $(READY_TO_DEPLOY) ## more methods, and each process killed, over Flower (half an hour)
	@echo "make test-deploy-all, $$(date -u +%F): three nodes with four clients each over Flower, with TLS" > benchmarks/deploy.txt
	GLOCAL_KEEP=benchmarks/deploy.txt $(BIN)/python -m pytest -m deploy_all tests/deploy

# Debian's browser: the package that drives it brings none that we would have to trust.
$(READY_TO_BROWSE): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[browser]"
	@touch $@

/usr/bin/chromium:
	@test "$$(id -u)" = 0 && command -v apt-get > /dev/null || \
		{ echo "make test-browser needs Chromium: install it with 'apt-get install chromium'." >&2; exit 1; }
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o DPkg::Lock::Timeout=300 chromium || \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; }

test-browser: $(READY_TO_BROWSE) | /usr/bin/chromium ## reports and the live view in a headless Chromium
	$(BIN)/python -m pytest -m browser tests/browser

# Libraries choose their arithmetic by the processor, and round otherwise on another one.
# Each setting makes one of them choose as elsewhere; all other tests compute on one thread.
# Threads of several processes on few cores sleep while they wait for each other.
ARITHMETIC := MKL_CBWR=COMPATIBLE ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=AVX2 \
	OMP_NUM_THREADS=2
NUMERICAL := $(addprefix tests/, core nn slots methods engines evaluation training)

test-arithmetic: $(READY) ## the numerical tests, computed as on other processors
	@set -e; for setting in $(ARITHMETIC); do \
		echo "$$setting"; \
		env "$$setting" OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n auto --dist worksteal $(NUMERICAL); \
	done

$(READY_FOR_DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@touch $@

# The variable silences a notice of the theme about its successor.
docs: $(READY_FOR_DOCS) ## the docs as a site in site/: code and notebooks run, links checked
	$(BIN)/python -m pytest -m docs tests/test_docs.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

check: $(READY) ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY) ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## how fast: plain loop, sequential, vectorised
	$(BIN)/glocal bench

clean: ## remove what was built
	rm -rf $(VENV) build dist site src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .coverage*
