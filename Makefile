# Needs make, git and a Python from 3.11 on, and fetches the rest. `make help` lists the targets.
#
#   make test                     the wheel on every supported Python (CI=1: all of them must be there)
#   make test PYTHONS=3.12        on one; PYTHONS="3.11 3.13" on some
#   make test PROFILE=long        many more examples for each property (brief, quick, ci, long)
#   make test ARGS="-k window"    a part of the tests; nothing is measured
#   make bench QUICK=1            small and short, for looking; without it the page on performance is written
#   make bench ARGS="overhead"    some questions only; ARGS="--loop uvloop" on another loop

SHELL := /bin/sh
PYTHON ?= $(firstword $(foreach name,python3 python python3.13 python3.12 python3.11,$(shell \
	$(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
NOX := .venv/bin/python -m nox
DEMO := .venv-demo/bin
PIP := $(DEMO)/python -m pip install --quiet --disable-pip-version-check

export PYTHONS
ifdef PROFILE
export HYPOTHESIS_PROFILE := $(PROFILE)
endif

.PHONY: help test check fix docs bench instructions soak demo demo-run demo-ready picture wheel lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' Makefile

test: .venv/ready  ## test the built wheel on each Python, and measure the coverage
	$(NOX) -s test $(if $(ARGS),-- $(ARGS),coverage)

check: .venv/ready  ## format, lint, types, layers, changelog, docs
	$(NOX) -s check docs

fix: .venv/ready  ## format and mend what the linter can, then check
	$(NOX) -s check -- fix

docs: .venv/ready  ## build the site into site/
	$(NOX) -s docs

bench: .venv/ready  ## measure against the bounds and the peers, on the newest Python (QUICK=1: in a minute)
	$(NOX) -s bench -- $(if $(QUICK),--quick) $(ARGS)

instructions: .venv/ready  ## count instructions; needs valgrind
	$(NOX) -s instructions $(if $(ARGS),-- $(ARGS))

soak: .venv/ready  ## ten virtual minutes and two real ones of mixed traffic
	$(NOX) -s soak $(if $(ARGS),-- $(ARGS))

demo: demo-ready  ## the translation desk, in your browser; Ctrl-C ends it
	@exec $(DEMO)/python -m examples.translation_desk $(PORT)

demo-run: demo-ready  ## checksums of all files here, four at a time, one key for each file type
	git ls-files | $(DEMO)/ephemerals run -j 4 --key '\.[A-Za-z0-9]+$$' -- sha256sum {}

picture: .venv/ready  ## take the picture of the desk for the documentation anew
	SCREENSHOT=1 $(NOX) -s test -- -q -k test_the_picture

wheel: .venv/ready  ## build dist/
	$(NOX) -s wheel

lock: .venv/ready  ## pin the requirements anew (ARGS=--upgrade: newest versions)
	$(NOX) -s lock $(if $(ARGS),-- $(ARGS))

clean:  ## remove everything that make has made
	rm -rf .venv .venv-demo .nox .coverage* .hypothesis .*_cache dist site

demo-ready: wheel
	@test -d .venv-demo || $(PYTHON) -m venv .venv-demo
	@$(PIP) --constraint requirements/test.txt click rich fastapi uvicorn jinja2 itsdangerous markdown-it-py
	@$(PIP) --no-deps --force-reinstall dist/*.whl

.venv/ready: requirements/make.txt
	@test -n "$(PYTHON)" || { echo "make: no Python from 3.11 on was found: set PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/make.txt
	@touch $@
