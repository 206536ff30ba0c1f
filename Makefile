# Every verb is one target; each sets up what it needs and is quick when that is there.
#   make demo [FAULT=worker]   a whole migration on embedded clusters, end to end
#   make up / make down        the same system, left running / ended
#   make test  make check      what CI runs
#   make attack [ATTACKS=2,7]  what an attacker tries first, tried on the installed product: held, or NOT HELD
#   make containers            images, and the demonstration in containers
#   make bench  make soak      measurements and long runs, never part of the tests; make fuzz: foreign bytes
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help env jars prepare collected test check check-types check-source format bench bench-aligned bench-cli bench-lint bench-replicate bench-releases bench-groups bench-offsets bench-verify bench-cutover bench-dags bench-scale bench-wire bench-spark bench-estate house soak soak-kafka attack fuzz docs pictures requirements checksums wheel changelog sbom sbom-images compose-secrets containers containers-down pin-images clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Compiled modules are kept in the environment and not beside the source, also where the caller keeps none: without them
# every process of a test compiles what it imports (collecting the tests: 18 s, with them 6; an Airflow imports 3,000).
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

env: $(VENV)/.ready ## the virtual environment, from the pinned requirements

$(VENV)/.ready: requirements/dev.txt requirements/install.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is missing: install Python 3.11 or newer (Debian: apt-get install python3 python3-venv), or set PYTHON=" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is $$($(PYTHON) -V), 3.11 or newer is needed; set PYTHON= to one" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "make: $(PYTHON) cannot make virtual environments (Debian: apt-get install python3-venv)" >&2; exit 2; }
	@echo "make: preparing $(VENV) (about a minute the first time)" >&2
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/install.txt
	$(BIN)/uv pip sync --quiet --require-hashes --python $(BIN)/python requirements/install.txt requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

jars: env ## Kafka's jars and a schema registry from Maven, cached outside the checkout
	@$(BIN)/python -m watershed.lab.jars >/dev/null
	@$(BIN)/python -m watershed.lab.schema_registry >/dev/null

# Half of the suite's time is waiting for brokers, so more files at a time than there are cores; a file stays with one
# process (those with a Spark session share two), and the order is that of tests/conftest.py (decisions 0049, 0070).
# What measures processor time runs before, a process a core. All tests are compiled once before, not by each of the
# processes (20 s of processor time each). RELEASES of Kafka that tests start beside the usual one are fetched before, for
# the same reason as `jars`.
MEASURED := tests/topology/test_topology_hostile.py
RELEASES := 0.11.0.3 2.4.1 2.8.2 3.9.1
PROCESSES ?= 5
test: $(if $(TESTS),env jars $(VENV)/spark.jsa,prepare) ## all tests: real brokers, real Spark, real Airflow
	$(if $(TESTS),,$(BIN)/pytest --numprocesses 2 $(MEASURED))
	$(BIN)/pytest --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder $(if $(TESTS),$(TESTS),--ignore $(MEASURED))

prepare: env jars ## what all tests need beside the environment, fetched or made once
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/spark.jsa collected
	@$(BIN)/python -m watershed.lab.jars $(RELEASES) >/dev/null

collected: env
	@$(BIN)/pytest --collect-only --quiet >/dev/null 2>&1 || true  # what is wrong is said by the tests' own run

$(VENV)/spark.jsa: $(VENV)/.ready
	@$(BIN)/python -m tests.spark_archive $@

check: env ## lint, format, types, imports between the rooms and between modules, names
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target check-types check-source

check-types: env
	$(BIN)/mypy

check-source: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m watershed.bench.house --check

format: env ## put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# BENCH_SMOKE=1 of any of these: sizes that take seconds; nothing is written and no goal counts, but the program has run.
bench: bench-cli bench-lint bench-dags bench-aligned bench-replicate bench-releases bench-groups bench-offsets bench-verify bench-cutover bench-scale bench-wire bench-spark bench-estate ## all measurements; BENCH_SMOKE=1: only whether each still runs

bench-cli: env ## how fast the command answers, in an environment with three packages
	$(BIN)/python -m watershed.bench.cli

bench-lint: env ## how lint grows: 10, 100, 1,000 clusters, 10,000 flows, 100,000 topics
	$(BIN)/python -m watershed.bench.lint

bench-aligned: env jars ## what equal offsets cost against the plan's budget, in about 5 minutes; BENCH_ALIGNED_START=1e8 in less
	$(BIN)/python -m watershed.bench.aligned

bench-replicate: env jars ## copying, against MirrorMaker 2 and the limit, in about 16 minutes; BENCH_CASES=quick BENCH_LATENCY=4 in 3
	$(BIN)/python -m watershed.bench.replicate

bench-scale: env jars ## thousands of quiet partitions, against MirrorMaker 2, in about 9 minutes; BENCH_PARTITIONS=100,1000
	$(BIN)/python -m watershed.bench.scale

bench-wire: env jars ## a side that is 100 ms away, at 200 Mbit/s, in about 3 minutes
	$(BIN)/python -m watershed.bench.wire

bench-spark: env jars ## flows that change records, against MirrorMaker 2 with single-message transforms, in about 8 minutes
	$(BIN)/python -m watershed.bench.spark

bench-estate: env ## 10,000 to 1,000,000 partitions on up to 1,000 workers on paper, and what breaks first, in about 1 minute; BENCH_ROUND_TRIP_MS=1
	$(BIN)/python -m watershed.bench.estate

bench-releases: env jars ## copying from older brokers by name, against the newest by topic id, in about 4 minutes
	$(BIN)/python -m watershed.bench.releases

bench-groups: env jars ## moving consumer groups, against MirrorMaker 2: records re-read and lost; in about 6 minutes
	$(BIN)/python -m watershed.bench.groups

bench-offsets: env jars ## the offset map of 10⁶ transactions: bytes in the ledger, seconds to load, ms a lookup; BENCH_TRANSACTIONS (5000) real ones
	$(BIN)/python -m watershed.bench.offsets

bench-verify: env jars ## proofs, against a plain consumer: GB/s, CPU a record, Spark's cores, 10 million records; BENCH_RECORDS=0 in half the time
	$(BIN)/python -m watershed.bench.verify

bench-dags: env ## how long Airflow parses the DAGs of 50 topologies
	$(BIN)/python -m watershed.bench.dags

bench-cutover: env jars ## seconds without writes of each strategy and by hand, 100 partitions; BENCH_CASES=fenced for one
	$(BIN)/python -m watershed.bench.cutover

house: env ## what the source looks like from inside, at a commit and now: names, docstrings, complexity, cycles, sizes; HOUSE_BEFORE=COMMIT
	$(BIN)/python -m watershed.bench.house

SOAK_MINUTES ?= 30
SOAK_PROOFS ?= 200
SOAK_ROUNDS ?= 5
soak: env jars ## random examples for SOAK_ROUNDS (5), the tests marked `soak`, random faults for SOAK_MINUTES (30), SOAK_PROOFS (200) of live traffic, a failover and back in Airflow
	-$(BIN)/python -m watershed.lab.kubernetes_server build  # once; without it (or without Go) its tests are skipped
	-$(BIN)/python -m watershed.lab.helm_program build  # likewise: the tests of the chart
	-$(BIN)/python -m watershed.lab.prometheus_server build  # likewise
	for round in $$(seq $(SOAK_ROUNDS)); do \
	  $(BIN)/pytest -m hypothesis --hypothesis-profile explore --numprocesses 2 --timeout 0 || exit; \
	done
	$(BIN)/pytest -m "soak or not soak" --hypothesis-profile explore --numprocesses 2 $(MEASURED)
	$(BIN)/pytest -m soak --timeout 3600
	WATERSHED_LAB_JVM= SPARK_SUBMIT_OPTS= $(BIN)/pytest tests/soak --soak-minutes $(SOAK_MINUTES) --soak-proofs $(SOAK_PROOFS) --timeout 0 -s

PAIRS ?=
soak-kafka: env jars ## copies between Kafka releases (28 pairs) and servers that are not Apache's (8; needs go), with faults; PAIRS=2.4.1/4.3.1 or PAIRS=others for some; writes docs/releases.md
	$(BIN)/python -m tests.soak.kafka_matrix --pairs "$(PAIRS)"

# Exit codes of the program itself: 0 all held, 1 one is not held, 2 one could not be carried out (make's own is 2 for both).
ATTACKS ?=
attack: env jars ## what an attacker tries first, on real clusters and the installed product, in about 2 minutes; ATTACKS=2,7 for some
	$(BIN)/python -m watershed.lab.attack --attacks "$(ATTACKS)"

FUZZ_MINUTES ?= 30
fuzz: env ## foreign bytes for FUZZ_MINUTES (30) together; FUZZ_TARGETS=files,hooks FUZZ_SEED=n, or FUZZ_INPUT=file for one
	@FUZZ_MINUTES="$(FUZZ_MINUTES)" FUZZ_TARGETS="$(FUZZ_TARGETS)" FUZZ_SEED="$(FUZZ_SEED)" FUZZ_INPUT="$(FUZZ_INPUT)" $(BIN)/python -m tests.fuzz

docs: env ## the pages that the code writes: reference, rules, the editors' schema
	$(BIN)/python -m watershed.topology.generated_docs docs
	$(BIN)/topology schema > topology/schema/v1alpha1.json

COMPILE := $(BIN)/uv pip compile --quiet --no-header --no-annotate --python-version 3.11 --universal --generate-hashes -c requirements/together.in
pictures: env jars ## the pictures of the page Replication in docs/pictures, anew, from a running Airflow; needs chromium
	$(BIN)/python -m tests.airflow.page_pictures docs/pictures

requirements: env ## pin the dependencies anew, with their hashes
	$(COMPILE) requirements/install.in -o requirements/install.txt
	for extra in "" kafka spark airflow lineage postgres dev; do \
	  $(COMPILE) $${extra:+--extra $$extra} pyproject.toml -o requirements/$${extra:-base}.txt; \
	done
	for extra in aws keystores kubernetes; do \
	  $(COMPILE) --extra $$extra -c requirements/spark.txt -c requirements/airflow.txt pyproject.toml -o requirements/$$extra.txt; \
	done

# lab/releases/pom.xml: a file for each release of lab/releases.py. bench/spark_kafka.xml is left out while Maven has no connector for this Spark.
checksums: env ## write down the checksums of the jars, after a version in one of these POMs was changed
	$(BIN)/python -m watershed.lab.jars --record lab/pom.xml lab/registry.pom.xml lab/releases/pom.xml lab/streams.pom.xml tests/clusters/usage/exporter.pom.xml tests/schemas/pom.xml tests/schemas/strimzi.pom.xml

wheel: env ## dist/watershed-….whl, which `pip install` takes anywhere (docs/install.md)
	@$(BIN)/python -m watershed.lab.wheel dist

VERSION ?=
changelog: env ## what the next release will say; VERSION=0.2.0 writes it into CHANGELOG.md and removes the fragments (docs/releasing.md)
	$(BIN)/towncrier build $(if $(VERSION),--yes --version $(VERSION),--draft --version next)

sbom: env ## a bill of materials (CycloneDX) of what is installed and fetched: watershed.cdx.json
	$(BIN)/python -m watershed.lab.sbom watershed.cdx.json

sbom-images: env ## a bill of materials of what is in each image, asked of the image: .watershed/sbom
	$(BIN)/python -m watershed.lab.containers.image_bill .watershed/sbom

compose-secrets: ## .env with random passwords, which docker-compose.yaml asks for; never overwrites one
	@docker/secrets.sh .env

RECORDS ?= 2000000
containers: env ## images of everything, and the demonstration in containers, with proof; KEEP=1 leaves them running; needs docker or podman
	$(BIN)/python -m watershed.lab.containers run --records $(RECORDS) $(if $(KEEP),--keep)

containers-down: env ## remove the containers and volumes of make containers KEEP=1
	$(BIN)/python -m watershed.lab.containers down

pin-images: ## pin the base images of docker/Dockerfile and docker-compose.yaml by digest (asks their registry; needs docker)
	@docker/pin.sh docker/Dockerfile docker-compose.yaml

clean: ## remove the environment and everything that ran here
	@if [ -d .watershed ]; then echo "make: .watershed holds running or stopped systems; make down ends them" >&2; fi
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache bench/results

-include demo.mk
