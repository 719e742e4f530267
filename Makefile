# make demo: train a translator for a phrasebook, translate, draw.   make test: lint, types and all tests but the slow ones.
# make docs: write the reference of the Python names into build/reference.   make site: the pages, into build/site/html.
# make course: repeat the experiments that docs/course quotes, in full, and write their numbers and figures there.
# All of them create .venv first, with the exact versions of constraints.txt.

PYTHON ?= python3
BIN = .venv/bin

.PHONY: demo docs site test tests lint style types test-slow test-gpu test-nightly test-server fuzz sanitize course benchmark benchmark-serving peers dist release-check clean

demo: .venv/demo.installed .venv/serve.installed
	$(BIN)/dragoman demo

# One more than there are cores: a fifth of the time, a test waits for a process or a page.
WORKERS = $(shell $(PYTHON) -c "import os; print(os.cpu_count() + 1)")

# The tests start hundreds of processes, which would compile the package each time if they may not keep what they compiled.
# mypy takes a minute on one core: it runs beside them.
test: export PYTHONDONTWRITEBYTECODE =
test: style
	$(MAKE) --no-print-directory --jobs 2 types tests

tests: tests/__pycache__
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --dist loadfile

# In a new clone one process compiles the tests, which takes it half a minute, instead of each worker at the same time.
tests/__pycache__:
	-@$(BIN)/python -m pytest --collect-only -qq >/dev/null

test-slow: .venv/test.installed
	$(BIN)/python -m pytest -m slow

# On a machine with a GPU and a build of PyTorch for it: make test-gpu BIN=/usr/bin
test-gpu:
	$(BIN)/python3 -m pytest -m gpu tests/inference/test_gpu.py

# Properties with twenty times the examples, other ones each time; a failure prints how to repeat it.
test-nightly: .venv/test.installed
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -m "not slow" -n auto --dist loadfile

# The server attacked in full size, some 20 minutes: 300 requests from schemathesis to each route, a thousand texts in
# crowds, hundreds of slow clients. It also runs Debian's slowhttptest, if that is installed.
test-server: .venv/test.installed
	$(BIN)/python -m pytest -m slow -rP --show-capture=stdout tests/server/test_any_request.py tests/server/test_access.py \
	  tests/server/test_crowds.py tests/server/test_slow_clients.py tests/server/test_without_keys.py \
	  tests/server/test_stopping.py

# One minute for each reader of strangers' bytes, one after another; some targets, for less: make fuzz SECONDS=10 TARGETS="config state"
SECONDS = 60
fuzz: .venv/fuzz.installed
	PYTHONPATH=tests:tests/data:tests/documents $(BIN)/python -m fuzz --seconds $(SECONDS) $(TARGETS)

lint: style types

style: .venv/test.installed
	$(BIN)/ruff check src tests scripts benchmarks docs/course/transformer.py
	$(BIN)/ruff format --check src tests scripts benchmarks docs/course/transformer.py

types: .venv/test.installed
	$(BIN)/mypy

docs: .venv/docs.installed
	$(BIN)/python scripts/api_reference.py build/reference

site: .venv/docs.installed
	$(BIN)/python scripts/docs_site.py build/site

# One thread, because the number of threads changes the last digits; that takes more than an hour.
course: .venv/test.installed
	OMP_NUM_THREADS=1 $(BIN)/dragoman lab all --out runs/course
	$(BIN)/python scripts/course_numbers.py --keep runs/course

benchmark: .venv/benchmark.installed peers
	$(BIN)/python -m benchmarks training --threads 2
	$(BIN)/python -m benchmarks memory --threads 2
	$(BIN)/python -m benchmarks decoding-length --threads 1

# Any measurement, with its flags, without the other toolkits unless `make peers` has installed them:
# make benchmark-decoding ARGUMENTS="--threads 2"
benchmark-%: .venv/benchmark.installed
	$(BIN)/python -m benchmarks $* $(ARGUMENTS)

# The steps in C++ under AddressSanitizer and UndefinedBehaviorSanitizer, compiled in a copy, and a million calls.
sanitize: .venv/test.installed
	rm -rf build/sanitize && mkdir -p build/sanitize && cp -r setup.py pyproject.toml README.md LICENSE src tests build/sanitize
	cd build/sanitize && rm -f src/dragoman/inference/*.so && CXXFLAGS="$(CHECKED)" $(abspath $(BIN))/python setup.py -q build_ext --inplace
	cd build/sanitize && LD_PRELOAD="$(shell c++ -print-file-name=libasan.so) $(shell c++ -print-file-name=libubsan.so)" \
	    ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=src $(abspath $(BIN))/python -m pytest tests/inference/test_native.py \
	    tests/inference/test_native_calls.py tests/inference/test_incremental.py

CHECKED = -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all

# About half an hour; any trained model and its test set: make benchmark-serving MODEL=runs/en-de TEST=test.tsv
benchmark-serving: .venv/all.installed .venv/benchmark.installed
	$(BIN)/python -m benchmarks serving -m $(MODEL) --test $(TEST) $(ARGUMENTS)

# Toolkits to measure against, 5 GB. Each has its own environment, because their requirements conflict. PACKAGES also names
# what a toolkit needs but does not declare.
peers: .venv/peers/marian .venv/peers/joeynmt .venv/peers/eole

TORCH = $(shell grep '^torch==' constraints.txt)
.venv/peers/marian: PACKAGES = pymarian==1.12.42
.venv/peers/joeynmt: PACKAGES = joeynmt==2.3.0 importlib_metadata==10.2.0 $(TORCH)
.venv/peers/eole: PACKAGES = eole==0.6.4 aiohttp==3.14.5 $(TORCH)
.venv/peers/%: | .venv/benchmark.installed
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet --disable-pip-version-check $(PACKAGES) || (rm -r $@; exit 1)

# The same commit gives the same bytes: its date is that of all files, and constraints.txt has the version of setuptools.
dist: .venv/release.installed
	SOURCE_DATE_EPOCH=$(shell git log -1 --format=%ct) PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build --outdir dist

# The checklist of a release, about half an hour; STEPS="archives base" runs some steps, PYTHON= takes another Python.
CONSTRAINTS = constraints.txt
WORK = /tmp/dragoman-release
release-check: .venv/release.installed
	$(BIN)/python scripts/release_check.py --work $(WORK) --python $(PYTHON) --constraints $(CONSTRAINTS) $(STEPS)

# BertViz without its dependencies: it would bring boto3, which none of our tests needs.
.venv/test.installed: ALONE = bertviz==1.4.1
# Python compiles what is imported; pip would compile everything, which takes a minute.
.venv/%.installed: pyproject.toml constraints.txt setup.py src/dragoman/inference/kernels.h src/dragoman/inference/transformer.cpp
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@command -v c++ g++ clang++ >/dev/null || echo "no C++ compiler: searches will run in PyTorch; install g++ or clang, then run make clean"
	@echo "installing dragoman[$*] and what it needs, which takes a minute or two after the downloads"
	$(BIN)/pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	$(if $(ALONE),$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --no-deps $(ALONE))
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache
