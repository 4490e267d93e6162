PYTHON ?= python3
BIN := .venv/bin
OUT ?= demo-out
DATA ?=
BENCHMARKS := porting.default_config porting.within_time porting.goal_tree porting.collective porting.commands porting.executors porting.limits porting.peer_torch_pruning \
	porting.streaming porting.precision porting.snips porting.no_data porting.tradeoffs porting.effort \
	porting.forecasts porting.branches porting.larger porting.step porting.packages porting.onnx_matrix porting.onnx_converters porting.pytorch_source \
	elastic.quality elastic.families elastic.exits elastic.search elastic.devices elastic.update elastic.blocks factory.quality factory.transformer \
	factory.classes factory.speed adaptation.test_time \
	device.switching device.inference device.loaded_memory device.engines device.decisions device.monitor_cost device.lending device.context_loop \
	latency.prediction latency.other_device latency.data_sheets \
	server.large_jobs server.submissions server.interruptions server.many_jobs server.web server.load server.scale \
	tuning.peer_lookup tuning.coordinator tuning.step tuning.memory tuning.accuracy tuning.convergence \
	tuning.adversaries tuning.communication
PROTOS := $(wildcard proto/mistify/v1/*.proto)

# Compiled modules are kept whatever the environment says: each process that the tests start would compile them anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install demo test test-slow test-web bench results docs support-matrix onnx-matrix onnx-operators check bom audit format proto clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

# Reinstall whenever the dependencies may have changed.
$(BIN)/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is required: make PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[server,dev]'
	touch $@

install: $(BIN)/installed  ## Create .venv and install everything into it

demo: install  ## Port the digits model to seven goals, into demo-out/
	$(BIN)/mistify port configs/digits.json --out $(OUT)

test: install  ## Run the tests
	$(BIN)/pytest -q --numprocesses 3 --dist worksteal

test-slow: install  ## Run the slow tests; DATA=DIR holds the CIFAR-10 and MLPerf Tiny files
	MISTIFY_TEST_DATA=$(DATA) $(BIN)/pytest -q -m slow --timeout 1800 --numprocesses 2 --dist worksteal

test-web: install  ## Run the browser tests; requires Chromium
	$(BIN)/pytest -q -m web tests/browser tests/mistify_server/web

# Exit code 77: skipped because data or an optional package are missing.
bench: install  ## Run the quick benchmarks; DATA=DIR holds the CIFAR-10 and MLPerf Tiny files
	$(BIN)/pip install --quiet --editable '.[bench]'
	failed=0; for name in $(BENCHMARKS); do \
		MISTIFY_TEST_DATA=$(DATA) $(BIN)/python -m benchmarks.$$name --quick || test $$? -eq 77 || failed=1; \
	done; exit $$failed

results: install  ## Generate RESULTS.md and the README's table and picture from benchmarks/records/
	$(BIN)/python -m benchmarks.results

docs: install  ## Build the documentation site in build/site/; warnings are errors
	$(BIN)/pip install --quiet --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

support-matrix: install  ## Write docs/support-matrix.md from 42 architectures, in half an hour
	mkdir -p docs
	$(BIN)/python -m benchmarks.porting.support_matrix --write docs/support-matrix.md

onnx-matrix: install  ## Write docs/onnx-matrix.md from PyTorch networks and packages' ONNX files, in half an hour
	$(BIN)/python -m benchmarks.porting.onnx_matrix --write docs/onnx-matrix.md

onnx-operators: install  ## Check all ONNX operators with ONNX's own tests, and write docs/onnx-operators.md
	$(BIN)/python -m benchmarks.porting.onnx_operators --write docs/onnx-operators.md

check: install  ## Check format, lint, docstrings, types, layers and generated code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m docs_site.docstrings
	$(BIN)/mypy
	$(BIN)/lint-imports
	rm -rf build/proto && mkdir -p build/proto
	$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=build/proto --pyi_out=build/proto \
		--grpc_python_out=build/proto $(PROTOS)
	diff -r -x __init__.py -x __pycache__ build/proto/mistify/v1 mistify/v1

bom: install  ## Write the bill of materials of .venv, build/bom.json (CycloneDX)
	$(BIN)/pip install --quiet --editable '.[audit]'
	mkdir -p build
	$(BIN)/python -m cyclonedx_py environment --pyproject pyproject.toml --output-reproducible \
		--output-file build/bom.json $(BIN)/python

audit: install  ## Check the packages in .venv for known vulnerabilities; requires a connection to pypi.org
	$(BIN)/pip install --quiet --editable '.[audit]'
	mkdir -p build
	$(BIN)/pip freeze --all --exclude-editable > build/installed.txt
	$(BIN)/python -m pip_audit --requirement build/installed.txt --no-deps --disable-pip --strict --progress-spinner off

format: install  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: install  ## Generate mistify/v1 from proto/
	$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=. --pyi_out=. --grpc_python_out=. $(PROTOS)

clean:  ## Remove the environment and all build output
	rm -rf .venv build demo-out
