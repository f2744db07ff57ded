# Every target sets up what it needs; python3 (3.11 or newer) and make are enough to begin with.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SITE := docs/_build/html
CODE := src tests benchmarks reproduction examples torture docs

.PHONY: demo test check docs dist install bench accuracy paper torture setup format clean

demo: $(STAMP)
	$(BIN)/rca demo

# One thread of linear algebra a worker: two that share a core take twice as long.
test: $(STAMP)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

check: $(STAMP)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python benchmarks/house.py
	$(BIN)/python benchmarks/walks.py
	$(BIN)/python -m pytest --doctest-modules src/richcomponents reproduction
	@$(MAKE) --no-print-directory dist docs

# What would be uploaded, checked; nothing is uploaded.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist . > /dev/null
	$(BIN)/twine check --strict dist/*

# The wheel in an environment of its own, without extras: the README runs there.
install: dist
	rm -rf $(VENV)-wheel && $(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	$(VENV)-wheel/bin/python tests/run_readme.py

# The site, in docs/_build/html: tutorials are run, a warning is an error, no network is needed once .venv is there.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs $(SITE)
	$(BIN)/python docs/check_site.py $(SITE)

bench: $(STAMP)
	$(BIN)/python benchmarks/kernel.py --json benchmarks/results/kernel.json
	$(BIN)/python benchmarks/general.py run speed --out benchmarks/results/general-speed

# Every figure ContrastiveRCA and RCA are held to: about half an hour on two cores; a killed run continues.
accuracy: $(STAMP)
	$(BIN)/python benchmarks/contrastive.py run
	$(BIN)/python benchmarks/general.py run

# The paper's figure, its claims and its biomarkers: about ten minutes on two idle cores; `make paper FULL=1` for all repeats.
paper: $(STAMP)
	$(BIN)/python -m reproduction --out paper $(if $(FULL),--full)

# Awkward tables, mutated files, every door, refits that fail, kill -9, threads, memory caps: about half an hour on two idle cores.
torture: $(STAMP)
	$(BIN)/python -m torture

format: $(STAMP)
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "richcomponents needs Python 3.11 or newer; set PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (once; a few minutes on a slow connection)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fast,dask,zarr,h5ad,test,check]'
	@touch $(STAMP)

$(VENV)/.docs: $(STAMP)
	@echo "installing what the site is built with"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-wheel docs/_build docs/api docs/auto_tutorials docs/pictures build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
