# Everything a person or CI runs. `make demo` and `make test` set up what they need.
#
# TORCH_PIP_ARGS   extra arguments for `pip install torch==2.13.0`. Empty by default, which takes what
#                  your pip is configured for: on PyPI that is a CUDA build of several gigabytes. For
#                  the small CPU build pass PyTorch's own CPU index, for ROCm its ROCm index:
#                      make demo TORCH_PIP_ARGS="--index-url <index>"
# PYTHON           the interpreter for the virtual environment, 3.11 or newer
# SEEDS            how many invented fleets `make sim` runs
# KILLS            how many programs `make kills` kills

PYTHON ?= python3
TORCH_PIP_ARGS ?=
SEEDS ?= 20000
KILLS ?= 100
VENV := .venv
BIN := $(VENV)/bin
STATIC := aegis/controller/static/index.html
WEB := $(shell find dashboards/web -type f -not -path '*/node_modules/*' -not -path '*/dist/*' 2>/dev/null)

.PHONY: help setup adapters demo test check fast-test sim kills mutation rewrite bench bench-training docs rules test-systemd test-images lock system-packages clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 20

setup: $(VENV)/.ready $(STATIC)  ## virtual environment, torch and the built dashboard

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Aegis needs Python 3.11 or newer; point PYTHON at one: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Could not make a virtual environment: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet $(TORCH_PIP_ARGS) torch==2.13.0
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# What the tests do without, torch above all: the one that is there stays.
ADAPTERS_WITHOUT := torch datasets einops pillow torch-checkpointing torchdata wandb
# Without dependencies, each of which the lock names anyway: so none of them brings another torch.
$(VENV)/.adapters: requirements-adapters.lock | $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements-adapters.lock
	@touch $@

adapters: $(VENV)/.adapters  ## transformers, accelerate, Lightning and torchtitan, for the adapters' tests

$(STATIC): $(WEB) | $(VENV)/.ready
	dashboards/build.sh $(BIN)/python
	@touch $@

demo: setup  ## a training job survives three faults (under 3 minutes)
	$(BIN)/aegis demo

test: setup system-packages  ## every test of the fast tier (under 10 minutes on 2 cores)
	$(MAKE) --no-print-directory check
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=15 -m "not slow"

check: setup  ## formatting, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p aegis -p aegis_agent
	$(BIN)/lint-imports

fast-test: setup  ## unit tests and scenarios only
	$(BIN)/python -m pytest -q tests/unit tests/scenarios

sim: setup  ## SEEDS invented fleets; a failing seed prints how to replay it
	$(BIN)/python -m aegis.sim run --seeds $(SEEDS) --jobs 2

kills: setup  ## KILLS programs killed at random moments; the job's losses stay what they would be (15 minutes)
	AEGIS_KILLS=$(KILLS) $(BIN)/python -m pytest -m slow tests/integration/loop/test_kills.py

mutation: setup  ## does anything notice when a line of what decides is wrong? (10 minutes)
	$(BIN)/python tests/mutation/run.py

rewrite: setup  ## write what the core does now into the scenario files; review the diff
	$(BIN)/python -m pytest -q tests/scenarios --rewrite
	git diff --stat tests/scenarios

bench: setup  ## how fast the core is, what the agent costs and how fast it tells, as JSON (8 minutes)
	$(BIN)/python bench/core.py
	$(BIN)/python bench/agent.py

bench-training: setup  ## what a checkpoint costs and how fast training is back, beside torchrun (root, idle, 15 minutes)
	$(BIN)/python bench/step.py
	$(BIN)/python bench/checkpoint.py --peers --json
	$(BIN)/python bench/recovery.py --short --json

docs: setup  ## the pages made from the catalogue of faults
	$(BIN)/python docs/generate.py

rules: setup  ## shipped rules and their tests, alerts and theirs
	$(BIN)/python -m pytest -q tests/unit/rules tests/integration/monitoring

test-integration: setup system-packages  ## every way ranks can end and hardware can lie; metrics on a real Prometheus
	-@$(MAKE) --no-print-directory adapters  # without them their tests are skipped, and say so
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/integration/launcher tests/integration/monitoring
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=15 -m slow tests/integration/agent tests/integration/loop

test-systemd: setup system-packages  ## boots real systemd nodes (root)
	$(BIN)/python -m pytest tests/systemd

test-images: setup system-packages  ## builds and starts the container images (root)
	$(BIN)/python -m pytest tests/images

lock: $(VENV)/.ready  ## resolve requirements.lock and requirements-adapters.lock anew
	$(BIN)/uv pip compile pyproject.toml --extra controller --extra agent --extra dev \
	  --generate-hashes --universal --no-header --no-annotate --upgrade -q -o requirements.lock
	printf "%s; sys_platform == 'never'\n" $(ADAPTERS_WITHOUT) | \
	  $(BIN)/uv pip compile pyproject.toml --extra adapters --constraint requirements.lock \
	  --override /dev/stdin --no-emit-package torch \
	  --generate-hashes --universal --no-header --no-annotate --upgrade -q -o requirements-adapters.lock

# Only what the tests of real components need, only as root, and only what is missing.
system-packages:
	@tests/system-packages.sh

clean:  ## what make built; not the virtual environment
	rm -rf build dist aegis/controller/static dashboards/web/node_modules
