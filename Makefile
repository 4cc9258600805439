# One command each. VENV= (empty) uses PYTHON's own environment and installs nothing.
PYTHON ?= python3
VENV   ?= .venv
R      ?=
SET    ?=
DEVICE ?= auto
CASE   ?=
JOBS   ?= $(if $(CASE),0,auto)
ARGS   ?=
TESTS  ?= tests
SLOW   ?=
# More of the package's extras, as in ,docs
EXTRAS ?=
# An index to take torch from, such as the one of its builds for CPUs.
TORCH_INDEX ?=

# Cases run side by side; threads of their own would only get in each other's way.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
# Runs start many processes, and each would compile the same sources again.
unexport PYTHONDONTWRITEBYTECODE

ENV    := $(if $(strip $(VENV)),$(VENV)/.made)
PY     := $(if $(strip $(VENV)),$(VENV)/bin/python,$(PYTHON))
# The one beside Python, if it is there, in an environment that is used as it is, too.
CLANG  := $(if $(strip $(VENV)),$(VENV)/bin/clang-format,$(or $(wildcard $(dir $(PYTHON))clang-format),clang-format))
STYLE  := {BasedOnStyle: Google, ColumnLimit: 120, AlignAfterOpenBracket: AlwaysBreak, ReflowComments: Never}
CUDA   := $(wildcard $(addprefix harness/,bench/*.cu kernels/*.cu kernels/*/*.cuh subjects/*.cu vectors/*.cpp) $(addprefix evidence/,museum/*/*.cu museum/*/*.cuh matrix_sums/*.cu sanitizer/*.cu) examples/*/*.cu)
SUITES := $(if $(R),$(R:%=suites/%.yaml),suites)
CASES  := $(if $(CASE),--case '$(CASE)')

.PHONY: help
help: ## List the targets and variables.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  R=per_tensor  one recipe, or several  SET=full     another set of its suite    CASE=ID   one case"
	@echo "  DEVICE=cuda   auto, emulator, cuda  JOBS=4       processes, or auto          ARGS=...  more for pytest"
	@echo "  PYTHON=...    3.11 or newer         VENV=        use PYTHON as it is         TORCH_INDEX=URL  of torch"

.PHONY: verify
verify: $(ENV) ## Run every recipe's kernels, on the CPU where there is no GPU, and compare every byte with two oracles.
	$(PY) -m harness verify $(R) --set $(or $(SET),$(if $(R)$(CASE),smoke,first)) $(CASES) --device $(DEVICE) --jobs $(JOBS) $(ARGS)

.PHONY: bench
bench: $(ENV) ## Verify the bench set, then time it, eager and as CUDA graphs, against the baseline recipe.
	$(PY) -m harness bench $(R) $(CASES) --device $(DEVICE) $(ARGS)

.PHONY: roofline
roofline: $(ENV) ## Time every kernel that has a figure to reach, and compare it with that figure.
	$(PY) -m evidence roofline $(ARGS)

.PHONY: gate
gate: $(ENV) ## Judge the newest times against the committed baseline of this GPU.
	$(PY) -m harness gate $(R) $(ARGS)

.PHONY: tables
tables: $(ENV) ## Make every committed table anew, all of one state, in parts of ten minutes: call it until it says that all are whole.
	$(PY) -m evidence tables $(ARGS)

.PHONY: exhaustive
exhaustive: $(ENV) ## Prove both scalar casts over all 2^32 float32 patterns, on a GPU.
	$(PY) -m evidence exhaustive

.PHONY: mutants
mutants: $(ENV) ## Make one line of a kernel or oracle wrong at a time, and see which case notices; no GPU.
	$(PY) -m evidence mutants $(ARGS)

.PHONY: thresholds
thresholds: $(ENV) ## See that each comparison of kernels and oracles is met on both sides or has a reason; no GPU.
	$(PY) -m evidence thresholds --check $(ARGS)

.PHONY: products
products: $(ENV) ## Hold what a layer loses end to end to what NUMERICS 10.8 lets it lose; SET=full has large shapes; no GPU.
	$(PY) -m evidence products --set $(or $(SET),smoke) $(ARGS)

.PHONY: sanitize
sanitize: $(ENV) ## Run the suites under compute-sanitizer's four tools, on a GPU.
	$(PY) -m evidence sanitize $(R) --set $(or $(SET),smoke) $(ARGS)

.PHONY: compile
compile: $(ENV) ## Compile every instantiation of the suites for sm_80, sm_90a and sm_100a, without a GPU.
	$(PY) -m harness compile $(ARGS)

.PHONY: test
test: $(ENV) ## Test the harness itself; no GPU. SLOW=1 has those tests, too, that take twice as long as all others.
	$(PY) -m pytest $(TESTS) -p no:logging -n $(JOBS) --dist worksteal $(if $(SLOW),,-m 'not slow') $(ARGS)

.PHONY: check
check: $(ENV) ## Check format, lint and that the files of each recipe agree.
	$(PY) -m ruff format --check --quiet .
	$(PY) -m ruff check --quiet .
	$(if $(CUDA),$(CLANG) --style='$(STYLE)' --dry-run --Werror $(CUDA))
	$(PY) -m harness check

.PHONY: format
format: $(ENV) ## Rewrite all sources in the house format.
	$(PY) -m ruff format --quiet .
	$(PY) -m ruff check --quiet --fix .
	$(if $(CUDA),$(CLANG) --style='$(STYLE)' -i $(CUDA))

.PHONY: docs
docs: $(ENV) ## Build the site of README and docs/ into build/site; a link that leads nowhere is an error.
	@$(PY) -c 'import material' 2>/dev/null || $(if $(strip $(VENV)),$(PIP) -e '.[docs]',\
	  { echo "error: $(PY) has no mkdocs-material; install the extra [docs], or let VENV make an environment" >&2; exit 64; })
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo build/site/index.html

.PHONY: schema
schema: $(ENV) ## Write suites/schema.json, by which editors complete and check suites.
	$(PY) -m harness schema

.PHONY: compared
compared: $(ENV) ## Write suites/compared.csv, how many cases each device compares, and docs/capabilities.md.
	$(PY) -m harness check --write

.PHONY: env
env: $(ENV) ## Make the environment, once.

.PHONY: clean
clean: ## Remove what runs, tests and builds leave behind; the environment and baselines stay.
	rm -rf results/runs build .pytest_cache .ruff_cache .hypothesis .benchmarks *.egg-info
	find harness ptx_emulator evidence tests -name __pycache__ -prune -exec rm -rf {} +

# A torch that is new enough is used as it is, through --system-site-packages; its pins would replace it.
HAS_TORCH := import sys, importlib.metadata as m; \
  sys.exit(sys.prefix != sys.base_prefix or tuple(map(int, m.version("torch").split(".")[:2])) < (2, 9))

PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c $(VENV)/constraints.txt
# On x86-64; on aarch64 0.3 GB more.
CUDA_NOTE := note: torch brings 2.1 GB of CUDA packages, 3.4 GB on disk, which a machine without a GPU has no use for; \
  end this with Ctrl-C and say make TORCH_INDEX=URL to take torch from the index of its CPU builds, which README.md names

$(VENV)/.made: pyproject.toml constraints.txt setup.py
	@case "$$(uname -sm)" in 'Linux x86_64' | 'Linux aarch64') ;; *) \
	  echo "error: Linux on x86-64 or aarch64 is needed, WSL too, and this is $$(uname -sm)" >&2; exit 64 ;; esac
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: Python 3.11 or newer is needed and $(PYTHON) is not; name one, as in make PYTHON=python3.12" >&2; exit 64; }
	@set -e; \
	if $(PYTHON) -c '$(HAS_TORCH)' 2>/dev/null; then \
	  $(PYTHON) -m venv --system-site-packages $(VENV); \
	  sed '/^# torch/,$$d' constraints.txt > $(VENV)/constraints.txt; \
	  if $(VENV)/bin/python -m pip show --quiet nvidia-cuda-nvrtc 2>/dev/null; then \
	    sed -i '/^nvidia-cuda-nvrtc==/d' $(VENV)/constraints.txt; \
	  fi; \
	else \
	  $(PYTHON) -m venv $(VENV); \
	  cp constraints.txt $(VENV)/constraints.txt; \
	  if [ -n '$(TORCH_INDEX)' ]; then \
	    $(PIP) --no-deps --index-url '$(TORCH_INDEX)' torch; \
	  elif ! command -v nvidia-smi >/dev/null; then \
	    echo '$(CUDA_NOTE)' >&2; \
	  fi; \
	fi
	$(PIP) -e '.[torch,plot,cluster,triton,dev$(EXTRAS)]'
	@if command -v nvidia-smi >/dev/null && ! $(VENV)/bin/python -c 'import cupy' 2>/dev/null; then \
	  $(PIP) -e '.[gpu]'; \
	fi
	@# pip does this on one core, and with packages' own tests. Some have files that no Python here can read.
	@$(VENV)/bin/python -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib || true
	@touch $@
