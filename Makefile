# The front door: `make help` lists what there is.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
# Not compiled: of fifteen thousand files few are ever imported, and those are compiled at the end.
PIP_OPTIONS := install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt
PIP_INSTALL := $(PIP) $(PIP_OPTIONS)
# Here torch comes without the libraries of graphics cards, which are gigabytes. Empty: from where all else comes.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
RAY_VERSION ?= 2.60.0
PEFT_VERSION ?= 0.21.2
TRANSFORMERS_VERSION ?= 5.24.0
PAGES ?= $(wildcard docs/tutorials/adapt-*.md)
PYTEST := $(BIN)/pytest -q -n 2 --dist worksteal
# What tests import beside the program.
TEST_MODULES := hypothesis.extra.numpy pytest pytest_asyncio.plugin xdist.plugin xdist.remote xdist.workermanage

# Makes an environment of its own; what it lacks comes from .venv, which lies behind it.
define behind
$(PYTHON) -m venv --without-pip $(1)
echo "import site; site.addsitedir('$(CURDIR)/$(wildcard $(VENV)/lib/python3*/site-packages)')" \
	> "$$(echo $(1)/lib/python3*/site-packages)/behind.pth"
printf '#!/bin/sh\nexec "$$(dirname "$$0")/python" -m fedchain "$$@"\n' > $(1)/bin/fedchain
chmod +x $(1)/bin/fedchain
endef

.DEFAULT_GOAL := help
.PHONY: help install simulate testnet test ray-test adapters-test oldest-test test-all check format docs tutorials bench fuzz mutants soak reproduce clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /|/' | awk -F'|' '{printf "  make %-10s %s\n", $$1, $$2}'

install: $(VENV)/.installed ## create .venv and install fedchain into it

# pip itself first: the one of Python 3.11 takes twice as long to choose the same versions.
# torch comes by itself, lest its index is asked for more; where that cannot be reached, it comes with the rest.
# libp2p comes by itself: of what it asks for, fastecdsa is never used and would need a compiler.
$(VENV)/.packages: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --upgrade pip
	[ -z "$(TORCH_INDEX)" ] \
		|| $(PIP_INSTALL) --no-deps --retries 1 --timeout 10 --index-url "$(TORCH_INDEX)" torch \
		|| echo "no torch from $(TORCH_INDEX): it comes from where all else does" >&2
	$(PIP_INSTALL) --editable '.[dev]'
	$(PIP_INSTALL) --no-deps libp2p
	@touch $@

$(VENV)/.installed: $(VENV)/.packages
	$(BIN)/python -m fedchain.bytecode $(TEST_MODULES)
	@touch $@

simulate: install ## 20 peers × 10 rounds of DFPL on real handwritten digits
	$(BIN)/fedchain simulate $(ARGS)

testnet: install ## 5 node processes × 5 rounds on this machine's loopback interface
	$(BIN)/fedchain node testnet --peers 5 --rounds 5 $(ARGS)

test: install ## run the tests without those that take long (ARGS goes to pytest)
	$(PYTEST) -m 'not long and not slow' $(ARGS)

ray-test: install ## the tests on clusters of Ray, which is put into an environment of its own behind this one's
	$(call behind,build/ray)
	$(PIP) --python build/ray/bin/python $(PIP_OPTIONS) 'ray==$(RAY_VERSION)'
	build/ray/bin/python -m pytest -q tests/learning/executors/test_on_ray.py $(ARGS)

adapters-test: install ## the tests on peft's adapters, in an environment like that one, and its tutorials (PAGES= leaves them out)
	$(call behind,build/adapters)
	$(PIP) --python build/adapters/bin/python $(PIP_OPTIONS) \
		'peft==$(PEFT_VERSION)' 'transformers==$(TRANSFORMERS_VERSION)'
	build/adapters/bin/python -m pytest -q tests/learning/models/test_peft.py $(ARGS)
	[ -z "$(PAGES)" ] || build/adapters/bin/python -m tests.pages $(PAGES)

oldest-test: install ## the tests with the oldest versions that pyproject.toml lets in, in an environment like those
	$(call behind,build/oldest)
	$(BIN)/python -m tests.support.oldest > build/oldest/requirements.txt
	$(PIP) --python build/oldest/bin/python install --quiet --no-deps --requirement build/oldest/requirements.txt
	build/oldest/bin/python -m pytest -q -n 2 --dist worksteal -m 'not long and not slow' $(ARGS)

test-all: install ## run all tests (ARGS goes to pytest)
	$(PYTEST) $(ARGS)

check: $(VENV)/.packages ## lint, format, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## rewrite the files as `make check` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: install ## build the pages of docs/ into build/docs (index.html), without a network
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs

tutorials: install ## type all that the pages say and compare what is printed (minutes; one page: ARGS=docs/tutorials/audit.md)
	$(BIN)/python -m tests.pages $(ARGS)

bench: install ## measure cost against bare loops and FedAvg (minutes; ARGS='memory --data-dir …' for one part)
	$(BIN)/python -m tests.bench $(ARGS)

fuzz: install ## feed damaged input to every decoder and to a node for a minute (ARGS='--seconds 600 --seed 2')
	$(BIN)/python -m tests.fuzz $(ARGS)

mutants: install ## plant hundreds of bugs one by one and see the tests notice each (hours; one file: ARGS='--only node/core/posts.py')
	$(BIN)/python -m tests.mutants $(ARGS)

soak: install ## faults, load and attacks against real processes (long; one campaign: ARGS='NAME …')
	$(BIN)/python -m tests.soak $(ARGS)

reproduce: install ## list the experiments of the papers, or run one: ARGS='dfpl-table1-fmnist --jobs 2'
	$(BIN)/fedchain reproduce $(ARGS)

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
