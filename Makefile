# `make demo` and `make test` are all a new machine needs: each makes .venv on its first run.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
PYTEST := $(BIN)/python -m pytest --dist worksteal
# Lint and types take one core while tests take the other; each target's output comes in one piece, but for that of
# pytest, which a leading + has told as it comes.
BOTH := $(MAKE) --no-print-directory --jobs 2 --output-sync=target
# Bytecode is kept, whatever the shell says: without it every process compiles the package and every test again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo check quick test everything test-ray test-browser viewer lint fuzz docs clean

demo: $(READY)
	rm -rf demo
	$(BIN)/recollect reproduce fig4 --preset robust --out demo --seeds 3

# Before every commit: lint and types, and beside them the quick tier.
check: $(READY)
	$(BOTH) lint quick

quick: $(READY)
	+$(PYTEST) -n 2 -m quick $(PYTEST_ARGS)

# Everything that this machine can run, of Ray one cluster.
test: $(READY)
	$(BOTH) lint everything

# Three workers for two cores: some of these tests wait for other processes.
everything: $(READY)
	+$(PYTEST) -n 3 -m "not ray" $(PYTEST_ARGS)

# All clusters of Ray: one that loses workers and a node, one without memory, one by its address, and Ray Data.
test-ray: $(READY)
	$(BIN)/python -m pytest tests/studies/test_ray.py tests/cli/test_recipes.py $(PYTEST_ARGS)

# The page in a real browser: Debian's Chromium, driven by Playwright, which needs none of its own.
test-browser: $(READY)
	command -v chromium chromium-browser google-chrome >/dev/null || \
		(apt-get update --quiet && apt-get install --yes --no-install-recommends chromium)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[browser]'
	$(BIN)/python -m pytest tests/browser $(PYTEST_ARGS)

# The viewer's script and style sheet, from their sources to the package; they are committed, so that nobody else
# needs Node.
viewer:
	cd viewer && npm ci --no-audit --no-fund && npm run check && npm run build

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

fuzz: $(READY)
	$(BIN)/python tests/reliability/fuzz.py --minutes 10

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

clean:
	rm -rf .venv demo build dist

$(READY): pyproject.toml
	test -d .venv || $(PYTHON) -m venv .venv
	# PyTorch first and by its release: asked for by a range it would bring gigabytes of GPU packages.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,torch,onnx]'
	touch $@
