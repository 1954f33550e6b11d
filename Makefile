# Each target by itself turns a fresh machine with Python 3.11+, git and make into a running project, in .venv.
PYTHON ?= python3
BIN := $(CURDIR)/.venv/bin
export PATH := $(BIN):$(PATH)
unexport PYTHONDONTWRITEBYTECODE  # every stage is a process: without bytecode each compiles torch anew, ten seconds
INSTALL := python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable

.PHONY: repro test lint docs dist release-check clean

repro: .venv/ready            ## slides -> pretrained encoders, by DVC
	dvc repro

PYTEST := OMP_NUM_THREADS=1 HISTO_MONAI_CPUS=1 python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder
LESSER := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41  # vector instructions of any x86-64: sums round otherwise

test: .venv/ready-test        ## all tests, the slow ones too; two at a time, a core each; small trainings once more
	$(PYTEST)
	$(LESSER) $(PYTEST) -m learns tests/training tests/finetuning tests/wsi/mil tests/pretraining

lint: .venv/ready-test        ## style, types, and who may import whom
	ruff check .
	ruff format --check .
	mypy
	lint-imports

docs: .venv/ready-test        ## the site of docs/, in site/; open site/index.html
	python -m documentation.params_page
	python -m documentation.commands_page
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict

dist: .venv/ready-test        ## wheel and sdist, in dist/
	python -m build

release-check: lint test docs ## what a release needs, in dist/: the wheel, a first run from it, packages and licenses
	$(INSTALL) .[test,release]
	python -m documentation.release

clean:                        ## the environment only; data/ stays
	rm -rf .venv

.venv/bin/python:
	$(PYTHON) -c "import sys; sys.exit(0 if sys.version_info >= (3, 11) else 'Python 3.11 or newer is needed, this is ' + sys.version.split()[0] + '; make PYTHON=/path/to/python3.11')"
	$(PYTHON) -m venv .venv

.venv/ready: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) .
	touch $@

.venv/ready-test: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) .[test]
	touch .venv/ready $@
