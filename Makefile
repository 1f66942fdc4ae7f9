# Thin: what a person types. The logic is in CMakePresets.json and scripts/ (each script has --help).
# Generator and parallelism come from here, so that the presets work with and without Ninja.
PYTHON ?= python3
ifneq ($(shell command -v ninja),)
export CMAKE_GENERATOR ?= Ninja
endif
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)

.DEFAULT_GOAL := build
.PHONY: build setup demo test nightly check-fast bars mutants soak native-table format tidy docs install clean help

build: ## configure and build build/release (the default); the command is build/release/bin/larklane
	@test -f build/release/CMakeCache.txt || cmake --preset release
	@cmake --build --preset release

setup: ## install what tests and demo use; says first what that is
	@$(PYTHON) scripts/dev/setup.py

demo: setup ## what the project is for, shown on this machine (5 minutes the first time)
	@test -f build/release/CMakeCache.txt || cmake --preset release
	@cmake --build --preset release --target demo_programs
	@$(PYTHON) demo/demo.py build/release

test: ## correctness tests in three builds: release, tsan, asan-ubsan (about 35 minutes on two cores)
	@$(PYTHON) scripts/dev/test.py

nightly: ## make test, with every MPI and the tests that take minutes (2-3 hours)
	@$(PYTHON) scripts/dev/test.py --nightly

check-fast: ## between edits: release build, unit, property and quick conformance tests (2 minutes)
	@$(PYTHON) scripts/dev/test.py --fast

bars: build ## every performance row; resumable; figures go to measurements/
	@status=0; for rows in measure/bars papers/statements measure/savings measure/snap policies/learned policies/timer papers/paper_figures papers/snap_figure papers/lane_figures measure/simulated; do $(PYTHON) scripts/$$rows.py || status=1; done; exit $$status

mutants: ## one-line mutations of the engine, each of which a named test must kill
	@$(PYTHON) scripts/dev/mutants.py

soak: ## the tests with a random part, with new seeds, for hours (SOAK=4h)
	@$(PYTHON) scripts/dev/test.py --soak $(or $(SOAK),4h)

native-table: build ## how the MPIs found here do without Larklane: docs/user/native-table.md
	@$(PYTHON) tests/conformance/native_table.py

format: ## clang-format of every C and C++ file
	@git ls-files -co --exclude-standard '*.c' '*.h' '*.cpp' '*.hpp' | xargs -r clang-format-14 -i

tidy: build ## clang-tidy, ruff and mypy on the whole tree (hours the first time; later runs take changed files)
	@status=0; for tool in ruff mypy "clang-tidy --all"; do $(PYTHON) scripts/dev/lint.py $$tool || [ $$? -eq 77 ] || status=1; done; exit $$status

docs: ## the API pages of include/larklane: build/docs/html/index.html (needs doxygen)
	@mkdir -p build/docs
	@doxygen Doxyfile

install: build ## cmake --install; choose the place with PREFIX=...
	@cmake --install build/release $(if $(PREFIX),--prefix $(PREFIX))

clean: ## remove build/ (what setup installed under .deps/ stays)
	@rm -rf build

help: ## this text
	@echo "make TARGET; without a target: build. On a fresh machine begin with 'make demo'."
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## / {printf "  %-14s%s\n", $$1, $$2}' Makefile
