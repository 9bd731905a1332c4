# Two commands do all the set-up: `make demo` and `make test`. Both use .venv, created from a pinned
# constraints file and reused if it is there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO ?= runs/demo
BENCH ?= speed

.PHONY: demo test crash matrix fuzz licences advisories bench soak secure flower-versions docs blocks notebooks dist clean

demo: $(VENV)/.installed
	rm -rf $(DEMO)
	$(BIN)/fedalpha compare --dataset digits --partition "shards(size=30)" --clients 20 --rounds 30 \
	  --strategy FedAvg --strategy "FedSoftWorse(T=0.2)" --strategy "FedSoftWorseAvg(T=0.2, at=10)" \
	  --seeds 5 --out $(DEMO)

# Three processes on two cores: the tests of live servers mostly wait.
test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 3 --dist worksteal

# Peers are installed in environments of their own, in the user's cache; takes about an hour on 2 idle cores.
# `make bench BENCH="speed --quick --no-peers"` shows in a minute that it works; `make bench BENCH=--help` lists the others.
bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks $(BENCH)

# Kill runs with SIGKILL: 200 times at random instants, then at every step of the save path.
crash: $(VENV)/.installed-dev
	$(BIN)/python tests/crash.py --kills 200

# The whole suite on emulated processors, with 1 to 4 threads, and on Python 3.12 and 3.13 with the newest versions: hours.
matrix: $(VENV)/.installed-dev
	$(BIN)/python tests/matrix.py

# A million changed inputs for every reader of foreign content (docs/fuzzing.md): about a quarter of an hour.
FUZZ ?= --inputs 1000000 --coverage 5000
fuzz: $(VENV)/.installed-dev
	cd tests && ../$(BIN)/python -m fuzzing $(FUZZ)

# The licence of every pinned package, as docs/licences.md.
licences: $(VENV)/.installed-dev
	$(BIN)/python tests/licences.py

# The pins against known advisories. pip-audit needs the internet, and gets an environment of its own. Without a network,
# ADVISORIES=FOLDER names a copy of https://github.com/pypa/advisory-database.
ADVISORIES ?=
ifneq ($(ADVISORIES),)
advisories: $(VENV)/.installed-dev
	$(BIN)/python tests/advisories.py $(ADVISORIES)
else
advisories:
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --disable-pip-version-check -q pip-audit
	.venv-audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip
endif

# Live federations: the bytes of a simulation on real nodes, a killed SuperLink, a node that comes back, an impostor: ten minutes.
soak: $(VENV)/.installed-dev
	$(BIN)/pytest tests/flower/soak.py

# A secure sum on a real SuperLink, with signing keys and a client that fails in mid-round. About two minutes.
secure: $(VENV)/.installed-dev
	$(BIN)/pytest tests/flower/secure_link.py

# Which versions of Flower work, each in an environment of its own, on a real SuperLink.
flower-versions: $(VENV)/.installed-dev
	$(BIN)/python tests/flower/versions.py --out docs/results/server --page docs/deployment.md

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e ".[fast]"
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e ".[dev]"
	touch $@

# The documentation site, as build/site; it needs no network, neither to be built nor to be read.
docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Every code block of the documentation in full; the suite runs them on little data. About a quarter of an hour.
blocks: $(VENV)/.installed-dev
	$(BIN)/python -m website.blocks --whole

# Run every notebook from start to end and store what it shows in it: some minutes.
notebooks: $(VENV)/.installed-dev
	$(BIN)/python -m nbconvert --to notebook --execute --inplace notebooks/*.ipynb

# The wheel and the source distribution in dist/, as they would be published; tests/test_wheel.py checks them.
dist: $(VENV)/.installed-dev
	$(BIN)/python -m build --no-isolation

clean:
	rm -rf $(VENV) .venv-audit runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
