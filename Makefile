# make demo: learn a phrasebook, translate, draw.   make test: everything that must hold.
# Both set up .venv first; the exact versions are in constraints.txt.

PYTHON ?= python3
BIN = .venv/bin

.PHONY: demo test lint test-slow benchmark peers clean

demo: .venv/demo.installed
	$(BIN)/dragoman demo

test: lint
	$(BIN)/python -m pytest -m "not slow" -n auto --dist worksteal

test-slow: .venv/test.installed
	$(BIN)/python -m pytest -m slow

lint: .venv/test.installed
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy

benchmark: .venv/benchmark.installed peers
	$(BIN)/dragoman benchmark training --threads 2
	$(BIN)/dragoman benchmark memory --threads 2
	$(BIN)/dragoman benchmark decoding-length --threads 1

# Toolkits to measure against, 5 GB. Each has an environment of its own: what they need excludes each other. The packages
# beside each are those that it needs and does not ask for.
peers: .venv/peers/marian .venv/peers/joeynmt .venv/peers/eole

TORCH = $(shell grep '^torch==' constraints.txt)
.venv/peers/marian: PACKAGES = pymarian==1.12.42
.venv/peers/joeynmt: PACKAGES = joeynmt==2.3.0 importlib_metadata==10.2.0 $(TORCH)
.venv/peers/eole: PACKAGES = eole==0.6.4 aiohttp==3.14.5 $(TORCH)
.venv/peers/%: | .venv/benchmark.installed
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet --disable-pip-version-check $(PACKAGES) || (rm -r $@; exit 1)

# BertViz would bring boto3, which it needs for nothing that is tested here.
.venv/test.installed: ALONE = bertviz==1.4.1
.venv/%.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	$(if $(ALONE),$(BIN)/pip install --quiet --disable-pip-version-check --no-deps $(ALONE))
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache
