"""Benchmark and validation of NVFP4 quantization kernels: bytes first, then time.

    import harness

    q = harness.quantize(x, "per_tensor", rht=True)       # of NumPy, torch or CuPy; on a GPU by the kernel
    y = harness.dequantize(q, "fp32")
    case = harness.find_case("per_tensor/rht=true,rounding=sr/256x192/normal/eager")
    result = harness.verify_case(case)                    # result.verdict, result.story
    screen = harness.compare_outputs(case, harness.run_kernel(case), harness.ask_oracle(case, "torch"))

`__all__` is the API; each name is imported when it is first asked for, so that `import harness` costs nothing. What
goes wrong is a `HarnessError`, whose text is one sentence.

A suite in YAML names cases; every case runs a CUDA kernel and two independent oracles on the same input, compares
every byte, and only then is timed. `docs/tour.md` walks through it. Beside the folders lie only the command line
(`cli`), the pytest plugin (`plugin`), what other projects' tests call (`testing`), verdicts (`verdict`), and helpers
that import no folder.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness import testing as testing
    from harness.api.cases import find_case as find_case
    from harness.api.cases import find_cases as find_cases
    from harness.api.cases import list_recipes as list_recipes
    from harness.api.cases import make_case as make_case
    from harness.api.cases import use_recipe_dir as use_recipe_dir
    from harness.api.run import ask_oracle as ask_oracle
    from harness.api.run import compare_outputs as compare_outputs
    from harness.api.run import make_inputs as make_inputs
    from harness.api.run import output_fields as output_fields
    from harness.api.run import run_kernel as run_kernel
    from harness.api.run import verify_case as verify_case
    from harness.api.tensors import Quantized as Quantized
    from harness.api.tensors import dequantize as dequantize
    from harness.api.tensors import quantize as quantize
    from harness.api.triton import triton_on as triton_on
    from harness.contract.case import Case as Case
    from harness.contract.field import Field as Field
    from harness.contract.interval import Interval as Interval
    from harness.errors import AccessError as AccessError
    from harness.errors import HarnessError as HarnessError
    from harness.errors import NotEmulated as NotEmulated
    from harness.verdict import Result as Result
    from harness.verdict import Verdict as Verdict

_WHERE = {
    **dict.fromkeys(("find_case", "find_cases", "list_recipes", "make_case", "use_recipe_dir"), "api.cases"),
    **dict.fromkeys(("ask_oracle", "compare_outputs", "make_inputs", "output_fields", "run_kernel"), "api.run"),
    **dict.fromkeys(("verify_case",), "api.run"),
    **dict.fromkeys(("Quantized", "dequantize", "quantize"), "api.tensors"),
    "Case": "contract.case",
    "Field": "contract.field",
    "Interval": "contract.interval",
    **dict.fromkeys(("AccessError", "HarnessError", "NotEmulated"), "errors"),
    "triton_on": "api.triton",
    **dict.fromkeys(("Result", "Verdict"), "verdict"),
}
__all__ = sorted(_WHERE)  # noqa: PLE0605 - the names above


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "testing":
        return import_module("harness.testing")
    if name not in _WHERE:
        raise AttributeError(f"module 'harness' has no attribute '{name}'; it has {', '.join(__all__)}")
    found = getattr(import_module(f"harness.{_WHERE[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> "list[str]":  # quoted for Pythons that are too old, which `__main__` tells so
    return sorted({*globals(), *__all__})
