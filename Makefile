# make demo: learn a phrasebook, translate, draw.   make test: everything that must hold.
# Both set up .venv first; the exact versions are in constraints.txt.

PYTHON ?= python3
BIN = .venv/bin

.PHONY: demo test lint test-slow benchmark clean

demo: .venv/demo.installed
	$(BIN)/dragoman demo

test: lint
	$(BIN)/python -m pytest -m "not slow"

test-slow: .venv/test.installed
	$(BIN)/python -m pytest -m slow

lint: .venv/test.installed
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy

benchmark: .venv/benchmark.installed
	$(BIN)/dragoman benchmark train-step --threads 1
	$(BIN)/dragoman benchmark train-step --threads 2
	$(BIN)/dragoman benchmark decoding-length --threads 1

.venv/%.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache
