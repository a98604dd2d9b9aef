# On a machine with python3 (3.11+, with venv and headers), make and gcc: `make demo`, `make test`. The rest is for
# those who change the SDK; `make help` lists it. Goals can be given
#   PYTHON=python3.12 VENV=.venv-3.12   another interpreter, in an environment of its own
#   ARGS="-k region -x"                 more arguments for what the goal runs
#   TORCH=no                            leave torch out of the test environment

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
TORCH ?= yes

BIN := $(VENV)/bin
PY := $(BIN)/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
BUILD := build/$(notdir $(VENV))
# Its own stamp with and without torch, so that either can follow the other.
TEST := $(VENV)/.test$(if $(filter no,$(TORCH)),,-torch)
# What the installation depends on; Python files do not count, since it is an editable one.
COMPILED := setup.py pyproject.toml $(wildcard instrument/recorder/*.[ch] exporters/instrument_exporters/*.[ch])

.DEFAULT_GOAL := help
.PHONY: help demo test test-interop run-interop lint format types sanitize refcounts bench wheel-check clean distclean
.DELETE_ON_ERROR:

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/\1|\2/p' Makefile | while IFS='|' read -r goal text; do \
	    printf '  make %-13s %s\n' "$$goal" "$$text"; done

# ---- environments; a stamp each, so that running a goal again costs nothing

$(VENV)/.ready: .ci/check_python.py
	@$(PYTHON) .ci/check_python.py
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade 'pip>=25.1' 'setuptools>=77'
	@touch $@

$(VENV)/.installed: $(VENV)/.ready $(COMPILED)
	PYTHONWARNINGS=ignore $(PIP) install --no-build-isolation --editable .
	@touch $@

$(TEST): pyproject.toml constraints-test.txt | $(VENV)/.installed
	$(PIP) install --constraint constraints-test.txt --group test $(if $(filter no,$(TORCH)),,--group torch)
	@touch $@

$(VENV)/.tools: pyproject.toml constraints-test.txt | $(VENV)/.installed
	$(PIP) install --constraint constraints-test.txt --group tools
	@touch $@

$(VENV)/.bench: pyproject.toml constraints-test.txt | $(VENV)/.installed
	$(PIP) install --constraint constraints-test.txt --group bench $(if $(filter no,$(TORCH)),,--group bench-torch)
	@touch $@

$(VENV)/.interop: pyproject.toml constraints-test.txt | $(VENV)/.installed
	$(PIP) install --constraint constraints-test.txt --group interop
	@touch $@

# ---- what people run

demo: $(VENV)/.installed  ## run the example program and show what it recorded
	@mkdir -p runs
	$(PY) examples/transformer --backend numpy --export json:runs/demo.jsonl $(ARGS)
	$(BIN)/instrument report runs/demo.jsonl --sort self --top 10
	@echo 'The run is in runs/demo.jsonl; more of it: $(BIN)/instrument report --help'

test: $(VENV)/.installed $(TEST)  ## the whole suite; torch too where this Python has a wheel of it
	$(PY) -m pytest $(ARGS)

# What these need is large, and holds pandas below 3, so it has an environment of its own.
test-interop:  ## our traces in Perfetto and HolisticTraceAnalysis
	@command -v node >/dev/null || { echo "!!!! Perfetto's trace processor needs node, and there is none here." >&2; exit 1; }
	$(MAKE) --no-print-directory run-interop VENV=$(VENV)-interop

run-interop: $(VENV)/.installed $(VENV)/.interop
	INSTRUMENT_TEST_INTEROP=1 $(PY) -m pytest tests/perfetto tests/hta $(ARGS)

# The benchmarks have environments of their own, one for each Python: PYTHONS="3.11 3.12 3.13" runs them all. Figures
# land in build/bench/, and `make bench-doc` puts them into docs/overhead.md. All versions run, whatever one says.
PYTHONS ?=
BENCH = failed=0; for v in $(or $(PYTHONS),default); do \
	    if [ $$v = default ]; then python=$(PYTHON) venv=.venv-bench; \
	    else python=$$(sh benchmarks/find_python.sh $$v) venv=.venv-bench-$$v; fi && \
	    $(MAKE) --no-print-directory $(1) PYTHON=$$python VENV=$$venv || failed=1; \
	done; exit $$failed
# A current numpy is measured as its users run it: some machines set these two for the sake of older ones.
NUMPY := env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE

bench:  ## what an annotation costs, beside its peers
	@$(call BENCH,overhead-here)

bench-program:  ## what whole programs lose by their annotations, and by the peers' in their place
	@$(call BENCH,program-here)

bench-scale:  ## cost against growth: spans, names, paths, threads, depth, reports
	@$(call BENCH,scale-here)

profile-self:  ## where the recorder's own instructions go, by callgrind
	@$(call BENCH,profile-here)

bench-doc:  ## put the figures of build/bench/ into docs/overhead.md
	$(PYTHON) benchmarks/tables.py build/bench docs/overhead.md

.PHONY: bench-program bench-scale bench-doc profile-self overhead-here program-here scale-here profile-here
overhead-here: $(VENV)/.installed $(VENV)/.bench
	$(PY) benchmarks/overhead.py --json build/bench/ $(ARGS)

program-here: $(VENV)/.installed $(VENV)/.bench
	$(NUMPY) $(PY) benchmarks/program.py --json build/bench/ $(ARGS)

scale-here: $(VENV)/.installed
	$(PY) benchmarks/scale.py --json build/bench/ $(ARGS)

profile-here: $(VENV)/.installed
	$(PY) benchmarks/instructions.py --json build/bench/ $(ARGS)

# ---- what CI runs besides

lint: $(VENV)/.tools  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.tools  ## what ruff can mend by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed $(VENV)/.tools  ## strict mypy, and the stubs against the extension
	$(PY) -m mypy
	$(PY) -m mypy.stubtest --concise --ignore-disjoint-bases instrument.recorder._core

# The tests of what is in C against extensions built with the address and undefined-behaviour sanitizers, in a folder
# of its own: -P keeps the source tree, and with it the ordinary extension, off the path.
SANITIZED := $(BUILD)/sanitized
$(SANITIZED)/.built: $(VENV)/.installed $(COMPILED)
	INSTRUMENT_BUILD_SANITIZE=1 $(PY) setup.py --quiet build \
	    --build-base $(SANITIZED) --build-temp $(SANITIZED)/objects --build-lib $(SANITIZED)/lib
	@touch $@

sanitize: $(SANITIZED)/.built $(TEST)  ## the tests of what is in C under the address and UB sanitizers
	INSTRUMENT_BUILD_SANITIZE=1 $(PY) setup.py --quiet build_py --build-lib $(SANITIZED)/lib
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	    PYTHONMALLOC=malloc PYTHONPATH="$(abspath $(SANITIZED)/lib)" INSTRUMENT_TEST_SANITIZED=1 \
	    $(PY) -P -m pytest -s -p no:cacheprovider tests/recorder tests/exporters/test_chrome.py $(ARGS)

# The extension against a debug build of CPython, which counts every reference and asserts more. Debian has one, which
# is unpacked below build/ unless it is installed; elsewhere name yours: DEBUG_PYTHON=/path/to/python.
COUNTED := $(BUILD)/refcounts
refcounts: $(VENV)/.installed  ## no entry point of the extension leaks a reference; needs a debug build of CPython
	@mkdir -p $(COUNTED)
	@sh .ci/debug_python.sh $(COUNTED)/python >$(BUILD)/debug-python || { \
	    echo "!!!! There is no debug build of CPython, and none can be had: references are NOT counted." >&2; exit 1; }
	rm -rf $(COUNTED)/lib
	PYTHONPATH="$$($(PY) -c 'import setuptools, pathlib; print(pathlib.Path(setuptools.__file__).parents[1])')" \
	    "$$(cat $(BUILD)/debug-python)" setup.py --quiet build \
	    --build-base $(COUNTED) --build-temp $(COUNTED)/objects --build-lib $(COUNTED)/lib
	PYTHONPATH="$(abspath $(COUNTED)/lib)" "$$(cat $(BUILD)/debug-python)" -P tests/recorder/refcounts.py

# By way of the source distribution: what it forgets is then missing here too.
wheel-check: $(VENV)/.tools  ## the built wheel in an empty environment, imported from another folder
	rm -rf $(BUILD)/wheel
	$(PY) -m build --no-isolation --outdir $(BUILD)/wheel/dist . >$(BUILD)/wheel-build.log 2>&1 || \
	    { cat $(BUILD)/wheel-build.log; exit 1; }
	$(PYTHON) -m venv $(BUILD)/wheel/venv
	$(BUILD)/wheel/venv/bin/python -m pip --disable-pip-version-check --quiet install $(BUILD)/wheel/dist/*.whl
	mkdir $(BUILD)/wheel/elsewhere
	cd $(BUILD)/wheel/elsewhere && ../venv/bin/python -I $(CURDIR)/.ci/check_wheel.py

# ---- and away again

clean:  ## remove what was built; environments stay
	rm -rf build dist ./*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f instrument/recorder/*.so exporters/instrument_exporters/*.so .venv*/.installed
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean  ## the environments too
	rm -rf .venv*
