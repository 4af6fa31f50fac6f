# Each target sets up its own virtual environment on a fresh clone; nothing else has to be installed.
PYTHON ?= python3
BIN := .venv/bin
# bytecode is kept wherever the machine stands, or every process would compile the tests anew; a
# process works through neighbours, which share fixtures, and helps the other in the end
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: test test-slow test-gpu check demo clean

test: .venv/installed
	$(PYTEST) -m "not slow and not gpu"

test-slow: .venv/installed
	$(PYTEST) -m "slow and not gpu"

test-gpu: .venv/installed
	$(PYTEST) -m gpu

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

demo: .venv/installed
	$(BIN)/psdnorm demo --out demo

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "torch>=2.11" setuptools
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[dev]"
	# U-Sleep is compared with this one; alone, as the rest of it would bring another torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps braindecode
	touch $@

clean:
	rm -rf .venv build demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
