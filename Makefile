# "make run" and "make test" need Python 3.11 or newer and nothing else; the other targets are for who changes the code.

HOST ?= 127.0.0.1
PORT ?= 8000
# The first Python on the path that is new enough; make run PYTHON=/path/to/python names one.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$name"; break; }; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps
UV := .venv/lock/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet --upgrade

.PHONY: run test test-all check soak bench lock format messages

run: .venv/installed
	@exec $(BIN)/python manage.py up --host "$(HOST)" --port "$(PORT)"

test: .venv/installed-dev
	@$(BIN)/python -m tests.everything $(ARGS)

test-all: .venv/installed-dev
	@$(BIN)/python -m tests.everything --all $(ARGS)

check: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd clients/python && ../../$(BIN)/lint-imports
	$(BIN)/djlint templates --lint --check --quiet
	$(BIN)/python manage.py check --fail-level WARNING
	$(BIN)/python manage.py makemigrations --check --dry-run

format: .venv/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/djlint templates --reformat --quiet
	$(BIN)/python -m tests.support.documents.client_sources

# The texts of pages and scripts into the catalogues of all languages, and these compiled. Needs GNU gettext.
messages: .venv/installed
	$(BIN)/python manage.py makemessages --all
	$(BIN)/python manage.py makemessages --all --domain djangojs
	$(BIN)/python manage.py compilemessages --ignore .venv

soak: .venv/installed-dev
	@$(BIN)/python -m pytest -m soak -o faulthandler_timeout=0 $(ARGS)
	@$(BIN)/python -m pytest -m hypothesis --hypothesis-profile=soak -o faulthandler_timeout=0 tests/core

bench: .venv/installed-dev
	@$(BIN)/python -m benchmarks $(ARGS)

# New pins and hashes from the two short lists.
lock: .venv/installed
	$(BIN)/python -m venv .venv/lock
	.venv/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(UV) requirements.in -o requirements.txt
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(UV) requirements-dev.in -o requirements-dev.txt

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Mnesis needs Python 3.11 or newer, and there is none on the path (python3: $$(python3 --version 2>&1)). Install one, or name it: make run PYTHON=/path/to/python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"Mnesis needs Python 3.11 or newer; $(PYTHON) is {sys.version.split()[0]}. Name another: make run PYTHON=/path/to/python3.12")'
	@"$(PYTHON)" -m venv .venv

# The stamps: installed again only when the pinned list changes.
.venv/installed: requirements.txt | $(BIN)/python
	@echo "Installing what Mnesis needs into .venv (once, about a minute) ..."
	@$(PIP) -r requirements.txt
	@touch $@

.venv/installed-dev: requirements-dev.txt | .venv/installed
	@echo "Installing what the tests need into .venv (once) ..."
	@$(PIP) -r requirements-dev.txt
	@touch $@
