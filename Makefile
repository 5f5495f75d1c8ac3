# Every target sets up .venv first; that is quick when nothing changed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
RUN := .venv/bin/python

.PHONY: help setup demo test lint test-long stubs docs clean

help:
	@echo "make demo       a real broker, router, two workers and aggregator answer examples/questions.jsonl"
	@echo "make test       lint, unit, contract, integration and end-to-end tests"
	@echo "make lint       style, types, import rules, proto style, generated stubs"
	@echo "make test-long  the long forms of the tests"
	@echo "make compose-test  builds, starts, tests and ends the compose deployment"
	@echo "make stubs      regenerates kev/v1 from proto/"
	@echo "make docs       rewrites the tables of docs/configuration.md"

setup:
	@$(PYTHON) scripts/set_up.py
	@$(RUN) scripts/kernels.py

demo: setup
	@$(RUN) -m kev.app.demo

test: setup
	@$(RUN) scripts/suite.py lint test

lint: setup
	@$(RUN) scripts/suite.py lint

test-long: setup
	@$(RUN) scripts/suite.py long

stubs: setup
	@$(RUN) proto/generate.py

docs: setup
	@$(RUN) scripts/config_table.py

include deploy/compose.mk

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
