# `make demo` sets up and runs the main job; `make test` sets up and runs the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_TO_DEPLOY := $(VENV)/.ready-to-deploy

.PHONY: help setup demo test coverage test-arithmetic test-compiled test-deploy test-deploy-all check format bench clean

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

$(READY_TO_DEPLOY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[flower,ray]"
	@touch $@

test-deploy: $(READY_TO_DEPLOY) ## between machines: every method, refusals, killed processes over Flower
	$(BIN)/python -m pytest -n auto --dist worksteal -m deploy tests/deploy

test-deploy-all: $(READY_TO_DEPLOY) ## more methods, and each process killed, over Flower (half an hour)
	@echo "make test-deploy-all, $$(date -u +%F): three nodes with four clients each over Flower, with TLS" > benchmarks/deploy.txt
	GLOCAL_KEEP=benchmarks/deploy.txt $(BIN)/python -m pytest -m deploy_all tests/deploy

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
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .coverage*
