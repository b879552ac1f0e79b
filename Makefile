# Everything is installed into .venv; nothing outside the checkout is changed.
# Needs: make, git, and a Python >= 3.11 that can make virtual environments.

# The first of these that truly runs is used (a pyenv shim may exist and yet run nothing).
# Override with `make setup PYTHON=/path/to/python`.
PYTHON ?=
CANDIDATES := $(PYTHON) python3.11 python3.13 python3.12 python3.14 python3
# More arguments for pytest: make test ARGS="tests/core -k mailbox"
ARGS ?=
# Processes that run tests. Each file is in one of them, and all that needs Spark. More than cores: half of them wait.
WORKERS ?= 4
# More arguments for the benchmarks: make bench BENCH_ARGS="--quick"
BENCH_ARGS ?=

# Where `make wheel` puts the wheel.
WHEELS ?= dist
# Where `make mongo-server` puts the server of some tests.
MONGO := .venv-mongo
WHEEL_TESTS := tests/test_compiled.py tests/core tests/test_wire.py tests/test_wire_bodies.py tests/payload tests/client/test_client.py \
	tests/client/test_service.py tests/client/test_direct.py tests/client/test_arguments.py tests/client/test_answers.py \
	tests/client/test_hostile_failures.py tests/integration/test_payload_trust.py tests/aio/test_trust.py tests/threads \
	tests/transport/test_handoff.py tests/transport/test_thread_wakes.py

# The long tests that CI runs, too. The stream first: it takes as long as all others.
MORE_TESTS := tests/latency/jobs/test_stream_process.py \
	tests/latency/jobs/test_stream.py \
	tests/latency/jobs/test_transforms.py \
	tests/latency/jobs/test_batch.py \
	tests/latency/jobs/test_hedged.py \
	tests/latency/jobs/test_engines.py \
	tests/latency/jobs/test_fold.py::test_batches_of_an_hour_that_is_over_become_one_directory_for_each_hour \
	tests/latency/jobs/test_fold.py::test_late_records_get_into_their_hour \
	tests/latency/jobs/test_fold.py::test_what_was_merged_stays_for_who_reads_it \
	"tests/latency/jobs/test_fold.py::test_whatever_change_it_is_killed_at_each_record_counts_once[4]" \
	tests/latency/test_ship.py \
	tests/latency/test_compact.py \
	tests/latency/analysis \
	tests/typing \
	tests/core/process/test_interrupted_casts.py \
	tests/integration/test_faults.py \
	tests/integration/test_router_restarts.py \
	tests/proxy/store/test_mongo.py \
	tests/integration/test_request_streams.py \
	tests/threads/test_threads.py::test_children_of_a_patched_program_take_nothing_from_it \
	tests/latency/jobs/test_session.py::test_a_session_that_ends_or_breaks_leaves_nothing_and_another_can_begin \
	tests/latency/jobs/test_session.py::test_java_that_hangs_is_killed_when_the_session_is_to_end \
	tests/latency/jobs/test_session.py::test_java_that_ends_while_it_is_stopped_is_an_error_and_leaves_nothing \
	tests/store \
	tests/proxy/conformance \
	tests/queue_server \
	tests/faults/test_queue_takeover.py \
	tests/faults/test_queue_bad_input.py \
	tests/faults/test_queue_clock_jumps.py \
	tests/faults/test_queue_drill.py::test_nothing_is_lost_or_done_twice_with_a_database \
	tests/faults/test_queue_drill.py::test_nothing_is_lost_or_done_twice_with_files \
	tests/server/test_queue_daemon.py \
	tests/faults/test_queue_mesh.py::test_items_of_one_router_are_worked_at_by_equal_workers_of_all_routers \
	tests/faults/test_queue_mesh.py::test_nothing_is_lost_where_everything_is_killed_at_once \
	tests/cli/test_poison.py \
	tests/faults/test_poison_simulation.py \
	tests/faults/test_mesh_simulation.py::test_nothing_breaks_with_the_node_poison \
	tests/cli/test_tap.py \
	tests/gateway/test_mesh.py \
	tests/gateway/test_quarantine.py \
	tests/programs \
	tests/fuzz \
	tests/faults/test_three_routers.py \
	tests/faults/test_lone_router.py \
	tests/faults/test_simulation.py::test_nothing_breaks \
	tests/faults/test_mesh_simulation.py::test_nothing_breaks \
	tests/faults/test_scenarios.py::test_the_router_is_restarted_in_order \
	tests/faults/test_scenarios.py::test_the_router_is_silent_rather_than_dead \
	tests/faults/test_scenarios.py::test_plain_programs_are_killed_while_they_are_busy \
	tests/faults/test_scenarios.py::test_large_payloads_of_patched_programs \
	tests/faults/test_scenarios.py::test_clients_come_and_go \
	tests/faults/test_scenarios.py::test_services_are_killed \
	tests/faults/test_scenarios.py::test_services_and_callers_are_stopped \
	tests/faults/test_scenarios.py::test_callers_and_services_are_cut_off \
	tests/faults/test_scenarios.py::test_a_slow_subscriber_hurts_itself_only \
	tests/faults/test_scenarios.py::test_the_disk_is_full \
	tests/faults/test_scenarios.py::test_all_verbs_for_a_while \
	tests/faults/test_mesh_drill.py \
	tests/examples \
	tests/docs/test_tutorial.py \
	tests/compat/test_legacy_service.py \
	tests/mesh \
	tests/core/router/mesh \
	tests/core/queue \
	tests/transport/test_dialed_routers.py \
	tests/integration/test_mesh_deaths.py \
	tests/integration/test_lost_wakeups.py::test_40_000_messages \
	tests/faults/test_crowd.py::test_a_small_crowd \
	tests/cli/test_proxy_stores.py \
	tests/faults/test_proxy.py \
	tests/faults/test_purges.py \
	tests/faults/test_topics_in_a_ring.py::test_a_router_is_killed \
	tests/cli/test_drill.py \
	tests/cli/test_bench.py \
	tests/threads/test_interrupted.py

# Long tests take longer than what is shown as hanging, and to show a process that is at work can end it.
PATIENT := -o faulthandler_timeout=3600

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input install --quiet
SOURCES := rpcmq compat tests benchmarks examples docs/conf.py docs/site hatch_build.py
CODE = $(wildcard $(SOURCES))
# A distribution of its own, with environments of its own: .venv-oslo-18 has oslo.messaging 18.
DRIVER := drivers/oslo
OSLO_VERSIONS := 18 17
OSLO := .venv-oslo
OSLO_RUNS := 18-native 17-native 18-gevent 18-eventlet
COMPILE := $(VENV)/bin/uv --quiet --no-config pip compile --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo demo-oslo test test-more test-long test-wheel test-oslo $(OSLO_RUNS:%=test-oslo-%) wheel cover tox bench bench-wheel docs lint format lock mongo-server build clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(VENV)/.project ## make .venv with the locked dependencies and rpcmq itself (instant when up to date)

demo: setup ## run a small cloud controller: three routers, api, scheduler, compute nodes, network
	@$(PY) -m examples.demo

demo-oslo: $(OSLO)-18/.ready ## run a small cloud of oslo.messaging over two routers, one of which is killed
	@$(OSLO)-18/bin/python $(DRIVER)/examples/demo.py

test: setup ## run the test suite, without what is marked long or needs Spark
	@$(PY) -m pytest -n $(WORKERS) $(ARGS)

test-more: setup ## run the long tests that CI runs, too: random frames and histories, a stream that is killed, web servers, services over asyncio, three routers in place of one, the model of a mesh, the deaths of its routers, slow ones, two signals in a row, Spark
	@$(PY) -m pytest -m "spark and not long" tests/latency/jobs $(ARGS)
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal -m long $(PATIENT) $(MORE_TESTS) $(ARGS)
	@CLIENT_SHELL=aio $(PY) -m pytest tests/client/test_service.py tests/client/test_direct.py
	@ROUTERS=3 $(PY) -m pytest -n $(WORKERS) tests/core/router --ignore tests/core/router/mesh

test-long: setup ## run only the long tests: stress, a million random frames; and those of clients in plain threads
	@$(PY) -m pytest -m "long or spark" $(PATIENT) $(ARGS)
	@CLIENT_SHELL=threads $(PY) -m pytest tests/client

# The wheel is unpacked into a folder of its own, which goes before the checkout: for the process of the tests and, since
# PYTHONSAFEPATH keeps the folder in which a process begins, the checkout, from going first, for those that it starts.
test-wheel: unpacked-wheel ## build the compiled wheel and run the tests of what is compiled against it
	@TESTED_WHEEL=$(CURDIR)/build/compiled PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/build/compiled:$(CURDIR) \
		$(PY) -m pytest -n $(WORKERS) \
		-o "pythonpath=build/compiled ." $(WHEEL_TESTS) $(ARGS)

.PHONY: unpacked-wheel
unpacked-wheel: setup
	@rm -rf build/wheel build/compiled
	@$(MAKE) --no-print-directory wheel WHEELS=build/wheel
	@$(PIP) --no-deps --target build/compiled build/wheel/*.whl

# At the same time: they wait most of theirs.
test-oslo: $(OSLO_VERSIONS:%=$(OSLO)-%/.ready) ## run the tests of the driver for oslo.messaging, with each version that it supports and in each kind of process
	@$(MAKE) --no-print-directory -j3 --output-sync=target $(OSLO_RUNS:%=test-oslo-%)

$(OSLO_RUNS:%=test-oslo-%): test-oslo-%:
	@echo "oslo.messaging $(firstword $(subst -, ,$*)), in a process of the kind $(lastword $(subst -, ,$*))"
	@cd $(DRIVER) && $(CURDIR)/$(OSLO)-$(firstword $(subst -, ,$*))/bin/python tests/run_as.py $(lastword $(subst -, ,$*)) $(ARGS)

cover: setup ## run the test suite with branch coverage
	@$(PY) -m coverage run -m pytest -m "not long" $(ARGS)
	@$(PY) -m coverage report --show-missing --skip-covered

tox: $(VENV)/.tools ## run the suite on each Python that is here, and the checks of tox.ini
	@$(PY) -m tox run $(ARGS)

bench: setup ## run the benchmarks beside their peers; a peer that can't be installed is left out
	@$(MAKE) --no-print-directory $(VENV)/.bench $(OSLO)-18/.ready \
		|| echo "bench: going on without what could not be installed"
	@$(PY) -m benchmarks $(BENCH_ARGS)

# Without PYTHONSAFEPATH the folder in which a process begins, the checkout, would go before the wheel.
bench-wheel: unpacked-wheel ## build the compiled wheel and run the benchmarks with it in all their processes, once make bench has installed their peers
	@PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/build/compiled:$(CURDIR) $(PY) -m benchmarks --results benchmarks/results/compiled $(BENCH_ARGS)

# All pages anew each time: Sphinx warns of a page only when it reads it.
docs: $(VENV)/.docs ## build the site into build/docs, readable without a network; warnings and dead links are errors
	@rm -rf build/docs
	@$(PY) -m sphinx --fail-on-warning --keep-going --nitpicky --quiet --fresh-env -b html -d build/docs-cache docs build/docs
	@$(PY) -m docs.site.check build/docs
	@echo "docs: open build/docs/index.html"

lint: setup $(OSLO)-18/.ready ## ruff, mypy --strict, the import contracts
	@$(PY) -m ruff check $(CODE) $(DRIVER)
	@$(PY) -m ruff format --check $(CODE) $(DRIVER)
	@$(PY) -m mypy $(CODE)
	@$(PY) -m mypy --python-executable $(OSLO)-18/bin/python --config-file $(DRIVER)/pyproject.toml -p rpcmq_oslo
	@$(VENV)/bin/lint-imports --no-logo

format: setup ## let ruff format and fix what it can
	@$(PY) -m ruff check --fix $(CODE) $(DRIVER)
	@$(PY) -m ruff format $(CODE) $(DRIVER)

lock: $(VENV)/.tools ## resolve pyproject.toml anew into requirements/*.txt
	@$(COMPILE) --upgrade --extra gateway --extra latency --extra postgres --extra proxy --extra queue --group dev -o requirements/dev.txt pyproject.toml
	@$(COMPILE) --upgrade --constraint requirements/dev.txt -o requirements/runtime.txt pyproject.toml
	@$(COMPILE) --upgrade --constraint requirements/dev.txt --group bench -o requirements/bench.txt
	@$(COMPILE) --upgrade --constraint requirements/dev.txt --group docs -o requirements/docs.txt
	@$(COMPILE) --upgrade --constraint requirements/dev.txt --group tools -o requirements/tools.txt
	@$(COMPILE) --upgrade --prerelease allow --group mongo -o requirements/mongo.txt
	@for version in $(OSLO_VERSIONS); do \
		$(COMPILE) --upgrade --constraint requirements/dev.txt pyproject.toml --group $(DRIVER)/pyproject.toml:test-$$version \
			-o requirements/oslo-$$version.txt || exit 1; \
	done
	@grep -c '==' requirements/*.txt

mongo-server: $(MONGO)/.ready ## install the server for the tests of the proxy's MongoDB store, in an environment of its own

build: setup ## build the wheel into dist/: pure Python
	@$(PY) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

wheel: setup ## build the compiled wheel into dist/; needs a C compiler and takes minutes
	@COMPILED_WHEEL=1 $(PY) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(WHEELS) .

clean: ## remove .venv and everything that was generated
	@rm -rf $(VENV) $(MONGO) $(OSLO_VERSIONS:%=$(OSLO)-%) .tox .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage htmlcov build dist
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# --- stamps: each is touched only when its step succeeded -------------------------------------

# $(call pip,WHAT,ARGUMENTS): pip install ARGUMENTS; a failure is one line, its detail goes to a log.
define pip
@$(PIP) $(2) >$(VENV)/pip.log 2>&1 || { \
	echo "make: pip could not install $(1); is the network up? See $(VENV)/pip.log, then run make again." >&2; exit 1; }
endef

$(VENV)/.created:
	@for python in $(CANDIDATES); do \
		"$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
		echo "setup: making $(VENV) with $$("$$python" -V 2>&1)"; \
		"$$python" -m venv --clear $(VENV) && touch $@ && exit 0; \
		echo "setup: $$python could not make $(VENV)" >&2; exit 1; \
	done; \
	echo "setup: no Python >= 3.11 with venv and pip was found; install one (Debian: python3.11 python3.11-venv) or say make setup PYTHON=..." >&2; \
	exit 1

$(VENV)/.dev: requirements/dev.txt | $(VENV)/.created
	@echo "setup: installing the locked dependencies"
	$(call pip,requirements/dev.txt,--require-hashes -r requirements/dev.txt)
	@touch $@

$(VENV)/.project: pyproject.toml $(VENV)/.dev
	$(call pip,rpcmq itself,--no-deps --no-build-isolation --editable .)
	@touch $@
	@echo "setup: ready in $(VENV)"

$(VENV)/.tools: requirements/tools.txt | $(VENV)/.created
	$(call pip,requirements/tools.txt,--require-hashes -r requirements/tools.txt)
	@touch $@

$(VENV)/.docs: requirements/docs.txt $(VENV)/.project
	@echo "docs: installing the locked generator"
	$(call pip,requirements/docs.txt,--require-hashes -r requirements/docs.txt)
	@touch $@

$(OSLO)-%/.ready: requirements/oslo-%.txt pyproject.toml $(DRIVER)/pyproject.toml | $(VENV)/.created
	@echo "oslo: installing the locked oslo.messaging $* into $(OSLO)-$*"
	@$(PY) -m venv --clear $(OSLO)-$*
	@$(OSLO)-$*/bin/python -m pip --disable-pip-version-check --no-input install --quiet \
		--require-hashes -r requirements/oslo-$*.txt >$(VENV)/pip.log 2>&1 \
		&& $(OSLO)-$*/bin/python -m pip --disable-pip-version-check --no-input install --quiet \
		--no-deps --no-build-isolation --editable . --editable $(DRIVER) >$(VENV)/pip.log 2>&1 || { \
		echo "make: pip could not install oslo.messaging $*; is the network up? See $(VENV)/pip.log, then run make again." >&2; exit 1; }
	@touch $@

# Apart from .venv: nothing of rpcmq may import it, whose licence is the GPL.
$(MONGO)/.ready: requirements/mongo.txt | $(VENV)/.created
	@echo "mongo-server: installing the locked server into $(MONGO)"
	@$(PY) -m venv --clear $(MONGO)
	@$(MONGO)/bin/python -m pip --disable-pip-version-check --no-input install --quiet \
		--require-hashes -r requirements/mongo.txt >$(VENV)/pip.log 2>&1 || { \
		echo "make: pip could not install the server; is the network up? See $(VENV)/pip.log, then run make again." >&2; exit 1; }
	@touch $@

$(VENV)/.bench: requirements/bench.txt $(VENV)/.project
	@echo "bench: installing the locked peers and plotting"
	$(call pip,requirements/bench.txt,--require-hashes -r requirements/bench.txt)
	@touch $@
