PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
EXTRAS ?= dev

BIN := $(VENV)/bin
COMMA := ,
READY := $(VENV)/.ready-$(subst $(COMMA),-,$(EXTRAS))
# One thread for each process: more of them wait for each other in busy loops.
THREADS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TVM_NUM_THREADS=1
# The tests start many processes: each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
# Bytes: a test's memory is kept for the next one instead of going back to the system.
MEMORY := MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TOP_PAD_=67108864
PYTEST := $(THREADS) $(MEMORY) $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
# Tests that draw more than in `make test` where VTA_BYOC_DRAWS says so (tests/support/draws.py):
# they ask for it themselves, or take what does.
HUNTS = $(shell grep -lrE '^from (draws|layer_outcomes|simulator_cases|test_random_graphs) import' \
  tests --include='test_*.py' | sort)
MODEL := build/resnet18.onnx
CALIBRATION := build/resnet18-calibration.npz
SAMPLE := build/resnet18-image.npy
# pip would complain about TVM's releases instead.
CHECK_PYTHON := import sys; v = sys.version_info[:2]; (3, 10) <= v <= (3, 13) or sys.exit( \
  "$(PYTHON) is Python %d.%d; 3.10 to 3.13 work; run: make PYTHON=python3.12 ..." % v)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo check test lint docs bench figures fuzz venv clean

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile

demo: $(READY) $(MODEL) ## Run ResNet-18 on the VTA simulator and check it bit for bit
	$(BIN)/vta-byoc run $(MODEL) --calibration $(CALIBRATION) --input $(SAMPLE) --check

check: $(READY) ## Run the unit tests, linters included: the inner loop
	$(PYTEST) -m unit tests

test: $(READY) ## Run all tests: units, components, end to end
	$(PYTEST) tests

lint: $(READY) ## Run ruff and mypy
	$(BIN)/python -m pytest -q tests/test_lint.py

docs: ## Build the site into build/docs and run every block of code; warnings are errors
	@$(MAKE) --no-print-directory venv EXTRAS=$(EXTRAS),docs
	$(THREADS) $(BIN)/python -m sphinx -b html -W --keep-going -q -j $(JOBS) docs build/docs
	$(BIN)/python docs/_ext/check_links.py build/docs
	$(BIN)/python docs/_ext/check_notebooks.py build/docs
	$(BIN)/python docs/_ext/run_blocks.py --jobs $(JOBS)

bench: $(READY) ## Run every benchmark and print its table
	@missed=; for script in $(filter-out benchmarks/fuzz% benchmarks/mutate% benchmarks/mutants.py benchmarks/record.py benchmarks/programs.py,$(wildcard benchmarks/[!_]*.py)); do \
	  echo "== $$script"; $(BIN)/python "$$script" || missed="$$missed $$script"; \
	done; test -z "$$missed" || { echo "failed or missed a target:$$missed"; exit 1; }

figures: $(READY) ## Record again what the docs quote of the benchmarks
	$(BIN)/python benchmarks/record.py

fuzz: $(READY) ## Hunt for wrong results: random instructions, random networks, damaged files
	$(BIN)/python benchmarks/fuzz.py
	$(BIN)/python benchmarks/fuzz_networks.py
	$(BIN)/python benchmarks/fuzz_networks.py --kind transformers
	$(BIN)/python benchmarks/mutate_files.py
	VTA_BYOC_DRAWS=many $(PYTEST) $(HUNTS)

venv: $(READY) ## Create the Python environment (PYTHON=python3.12 picks another Python)

clean: ## Remove everything that make, pip and the tools have written
	rm -rf $(VENV) build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find hw vta_byoc tests models benchmarks docs examples -name __pycache__ -exec rm -rf {} + 2>/dev/null || true

# The stamp is newer than all that decides what is installed, or the environment is updated.
$(READY): setup.py pyproject.toml vta_byoc/base/pins.py
	@$(PYTHON) -c '$(CHECK_PYTHON)'
	@echo "Installing into $(VENV); the first time downloads TVM and takes a minute or two."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$(EXTRAS)]"
	@touch $@

$(MODEL): $(wildcard models/*.py) | $(READY)
	@mkdir -p $(@D)
	$(BIN)/python models/resnet18.py -o $@ --calibration $(CALIBRATION) --sample $(SAMPLE)
