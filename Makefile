# One word each; `make` alone lists them. Python >= 3.11 and make are all that a fresh machine needs.

PYTHONS ?= python3.13 python3.12 python3.11 python3
PY := .venv/bin/python
# Extra arguments, e.g. `make test ARGS="-k breaker"`.
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run demo test check bench soak image format clean venv lock
.DELETE_ON_ERROR:
unexport PYTHONPATH PYTHONHOME
export PIP_DISABLE_PIP_VERSION_CHECK := 1

help:
	@echo 'make run     the proxy with simulated providers, and traffic; stays up'
	@echo 'make demo    the same, without staying up'
	@echo 'make test    every test'
	@echo 'make check   format, lint, types, architecture'
	@echo 'make bench   the benchmark'
	@echo 'make soak    everything at once for ten minutes; then nothing may be left of it'
	@echo 'make image   the steps of the Dockerfile without Docker, and what they make as a container'
	@echo 'make format  rewrite the sources in the house format'
	@echo 'make clean   remove what the others made'

run: venv
	@$(PY) -m proxy demo --stay $(ARGS)

demo: venv
	@$(PY) -m proxy demo $(ARGS)

# Side by side, a file at a time: many tests wait for a limit to pass, so that two cores serve four.
test: venv
	@$(PY) -m pytest -n 4 --dist loadfile $(ARGS)

check: venv
	@$(PY) -m ruff format --check -q .
	@$(PY) -m ruff check -q .
	@$(PY) -m mypy --strict
	@$(PY) -m pytest -q --no-header tests/test_architecture.py

bench: venv
	@$(PY) -m tests.bench $(ARGS)

soak: venv
	@$(PY) -m tests.soak $(ARGS)

image: venv
	@BUILD_IMAGE=1 $(PY) -m pytest tests/k8s/test_image.py tests/k8s/test_container.py $(ARGS)

format: venv
	@$(PY) -m ruff check -q --fix-only .
	@$(PY) -m ruff format -q .

clean:
	@rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

venv: .venv/stamp

# The candidates are run, not only found: a version manager's stub may exist for a Python that does not.
.venv/stamp: pyproject.toml requirements.lock
	@for python in $(PYTHONS); do \
	    if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        found=$$python; break; \
	    fi; \
	done; \
	if [ -z "$${found:-}" ]; then \
	    echo 'Sponson needs Python 3.11 or newer with its venv module, and found none among: $(PYTHONS).' >&2; \
	    echo 'Install one (Debian and Ubuntu: also python3-venv), or name it: make PYTHONS=/path/to/python.' >&2; \
	    exit 1; \
	fi; \
	$(PY) -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "Making .venv with $$found, once." >&2; \
	    "$$found" -m venv --clear .venv; \
	}
	@$(PY) -m pip install -q -r requirements.lock
	@$(PY) -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@

# Renews requirements.lock from pyproject.toml, in an environment of its own.
lock: venv
	@$(PY) -m venv --clear build/lock
	@build/lock/bin/python -m pip install -q '.[dev]'
	@{ echo '# All that a development environment holds, pinned; `make lock` renews it from pyproject.toml.'; \
	   build/lock/bin/python -m pip freeze --all --exclude pip --exclude sponson; } >requirements.lock
	@rm -rf build/lock
