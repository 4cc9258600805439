"""`printf` and `assert` in a kernel: shown with block and thread, and stopped at the line of the `.cu`."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import module as compiled
from ptx_snippets import kernel as ptx_kernel
from ptx_snippets import run

from ptx_emulator.errors import Fault, NotEmulated
from ptx_emulator.launches import PRINTED, Module, launch
from ptx_emulator.memory import Buffer

pytestmark = pytest.mark.covers("call.uni")

SOURCE = r"""
__global__ void prints(const float* x, int n) {
  if (threadIdx.x % 2 == 1 && blockIdx.x == 1) {
    printf("%d %5.2f|%s|%-4u|%llx|%c|%%|%hhd\n", n, x[threadIdx.x], "text", 7u, 0xABCDEF012ull, 'q', 300);
  }
}
__global__ void plain() { printf("no arguments, no end"); }
__global__ void stars() { printf("[%*d] [%.*f] [%e]", 6, 42, 2, 3.14159, 12345.678); }
__global__ void returns(int* out) { out[threadIdx.x] = printf("%d", int(threadIdx.x)); }
__global__ void asserts(const float* x) { assert(x[threadIdx.x] > 0); }
__global__ void endless() { for (int i = 0; i < 5000; ++i) printf("%d\n", i); }
__global__ void lost(const char* text) { printf(text); }
__global__ void allocates(void** out) { *out = malloc(16); }
struct Five { float of[5]; };
namespace outer { namespace inner {
template <class T> __noinline__ __device__ T cubed(T x) { return x * x * x + clock(); }
} }
static __noinline__ __device__ float squared(float x) { return x * x + clock(); }
template <int n> __noinline__ __device__ void sets(float* x) { *x = n + clock(); }
extern "C" __noinline__ __device__ int fibonacci(int n) { return n < 2 ? 1 : fibonacci(n - 1) + fibonacci(n - 2); }
__noinline__ __device__ Five summed(Five x) { x.of[1] += x.of[2] + clock(); return x; }
__global__ void calls_one(float* x) { *x = squared(*x); }
__global__ void calls_in_a_namespace(float* x) { *x = outer::inner::cubed(*x); }
__global__ void calls_a_template(float* x) { sets<3>(x); }
__global__ void calls_itself(int* x) { *x = fibonacci(*x); }
__global__ void passes_a_struct(Five* x) { *x = summed(*x); }
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return compiled(SOURCE.replace("__global__", 'extern "C" __global__'))


def printed(module: Module, kernel: str, *args, grid: int = 1, block: int = 1, **options) -> list[str]:
    lines: list[str] = []
    launch(module, kernel, (grid, 1, 1), (block, 1, 1), args, echo=lines.append, **options)
    return lines


def floats(*values: float) -> Buffer:
    return Buffer("x", np.array(values, np.float32).view(np.uint8))


@pytest.mark.parametrize("compiled", [True, False])
def test_a_line_has_its_block_and_thread(module, compiled):
    lines = printed(module, "prints", floats(0, 1.5, 2, -3.25), 9, grid=2, block=4, compiled=compiled)
    assert lines == [
        "block (1, 0, 0), thread (1, 0, 0): 9  1.50|text|7   |abcdef012|q|%|44\n",
        "block (1, 0, 0), thread (3, 0, 0): 9 -3.25|text|7   |abcdef012|q|%|44\n",
    ]


def test_a_line_without_an_end_gets_one(module):
    assert printed(module, "plain") == ["block (0, 0, 0), thread (0, 0, 0): no arguments, no end\n"]
    assert printed(module, "stars")[0].endswith(": [    42] [3.14] [1.234568e+04]\n")


def test_it_returns_and_the_kernel_goes_on(module):
    out = Buffer("out", np.zeros(16, np.uint8), initialised=False)
    assert len(printed(module, "returns", out, block=4)) == 4
    assert out.data.view(np.int32).min() >= 0 and out.written.all()


def test_an_assertion_stops_the_kernel_at_its_line(module):
    with pytest.raises(Fault) as caught:
        printed(module, "asserts", floats(1, 1, 0, 1), block=4)
    assert (caught.value.kind, caught.value.where) == ("assertion", "kernel.cu:10")
    assert "`x[threadIdx.x] > 0` is false in void asserts(const float *)" in str(caught.value)
    assert "block (0, 0, 0), thread (2, 0, 0)" in str(caught.value)
    assert printed(module, "asserts", floats(1, 1, 1, 1), block=4) == []


def test_what_is_printed_without_end_is_cut(module):
    lines = printed(module, "endless")
    assert len(lines) == PRINTED + 1 and lines[-1].startswith(f"more than {PRINTED} lines are printed")


def test_a_text_that_is_nowhere_is_out_of_bounds(module):
    with pytest.raises(Fault, match="printf reads at 0x7, where no memory is") as caught:
        printed(module, "lost", 7)
    assert caught.value.kind == "out_of_bounds"


WAY_OUT = "mark it __forceinline__, or write its recursion as a loop"


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        ("allocates", r"call\.uni at kernel\.cu:\d+: CUDA's own function malloc"),
        ("calls_one", rf"call\.uni at kernel\.cu:\d+: the function squared is not inlined; {WAY_OUT}"),
        ("calls_a_template", rf"call\.uni at kernel\.cu:\d+: the function sets is not inlined; {WAY_OUT}"),
        ("calls_itself", rf"call\.uni at kernel\.cu:\d+: the function fibonacci is not inlined; {WAY_OUT}"),
        ("calls_in_a_namespace", rf"call\.uni at kernel\.cu:\d+: the function cubed is not inlined; {WAY_OUT}"),
        ("passes_a_struct", r"st\.param\.\S+ at kernel\.cu:\d+: a struct for a function that is not inlined; mark the "
                            r"function __forceinline__"),
    ],
)  # fmt: skip
def test_another_function_is_not_emulated_and_has_a_way_out(module, kernel, says):
    with pytest.raises(NotEmulated, match=f"^not emulated: {says}$"):
        printed(module, kernel, Buffer("out", np.zeros(24, np.uint8)))


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("call (%r1), %rd1, (%r0), shape;", "a function that a pointer names; call it by its name, and mark it "
                                            "__forceinline__"),
        ("call.uni __internal_sin, (%r0);", "CUDA's own function __internal_sin"),
    ],
)  # fmt: skip
def test_a_call_through_a_pointer_and_one_within_a_library_are_told(call: str, why: str):
    with pytest.raises(NotEmulated) as refused:
        run(ptx_kernel(f" mov.u32 %r0, 1; {call}", 0), {})
    assert str(refused.value) == f"not emulated: {call.split()[0]} at ptx:8: {why}"


def test_without_an_echo_it_is_standard_output(module, capsys):
    launch(module, "plain", (1, 1, 1), (1, 1, 1), ())
    assert capsys.readouterr().out == "block (0, 0, 0), thread (0, 0, 0): no arguments, no end\n"
