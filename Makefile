# Kernel Playground. Every target sets up .venv by itself; the second time that costs nothing.
#   make lab        open the primer in JupyterLab; kernels are built when they are asked for
#   make test       the tests: every op, the loader, the lab, the simulator, the checker, the chapters
#   make test-all   these, and then those that take long
#   make chapters   the book as a web site: html/index.html
#   make bench      on a GPU: measure every op beside its rivals, write table and pictures
#   make clean      remove what these targets made
# PYTHON=python3.12 and CXX=clang++ choose the interpreter and the compiler: g++, or clang 16 and later.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
TESTS  := $(VENV)/.ready-for-tests
# Python compiles a module when it is first imported; to compile all of them takes longer than the
# rest of set-up.
PIP     := $(BIN)/python -m pip install --no-compile --constraint constraints.txt
INSTALL := $(PIP) --editable
unexport PYTHONDONTWRITEBYTECODE

.PHONY: lab test test-all chapters bench clean

$(READY): pyproject.toml constraints.txt
	@missing() { echo "make: $$1 is missing. Get it with: $$2" >&2; exit 1; }; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || missing \
	    "Python 3.11 or later (looked for $(PYTHON))" \
	    "apt install python3 (Debian), conda install 'python>=3.11' (conda), brew install python (macOS)"; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing \
	    "$(PYTHON)'s module ensurepip" \
	    "apt install python3-venv (Debian), conda install pip (conda), brew install python (macOS)"; \
	command -v "$${CXX:-c++}" >/dev/null || missing \
	    "a C++ compiler (looked for $${CXX:-c++})" \
	    "apt install g++ (Debian), conda install cxx-compiler (conda), xcode-select --install (macOS)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch ninja
	@# The simulator's runtime compiles beside what follows; if it fails, its first use says why.
	@$(BIN)/python -m jitload build --environment >/dev/null 2>&1 & \
	extras=; \
	if nvidia-smi -L >/dev/null 2>&1 && ! command -v nvcc >/dev/null && [ -z "$$CUDA_HOME" ]; then \
	    extras='[nvcc]'; \
	fi; \
	(set -x; $(INSTALL) ".$$extras") && wait
	@git config filter.chapters.clean \
	    'if test -x $(BIN)/python; then $(BIN)/python -I kernel_playground/git_filter.py %f; else cat; fi' \
	    2>/dev/null || true # so that a chapter that was only run is no change
	@touch $@

# What tests, the book's pages and their checks need besides.
$(TESTS): $(READY)
	$(INSTALL) ".[test]"
	@touch $@

# It builds nothing first: a reader waits for no kernel but the one that a cell calls.
lab: $(READY)
	@exec $(BIN)/python -m kernel_playground lab

# Side by side, in a process more than there are cores; they share one cache of builds.
PYTEST := $(BIN)/python -m pytest --numprocesses=logical --dist=worksteal

test: $(TESTS)
	$(PYTEST) -m "not slow"

test-all: test
	$(PYTEST) -m slow

chapters: $(TESTS)
	$(BIN)/python notebooks/site/book.py html

bench: $(READY)
	$(BIN)/python -m lab.bench

clean:
	rm -rf $(VENV) html build dist kernel_playground.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +
