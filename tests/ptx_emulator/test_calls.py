"""`printf` and `assert`, shown with block and thread; functions that are called by name, by a pointer and virtually."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import line_of
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


def test_a_function_of_cuda_is_not_emulated(module):
    with pytest.raises(NotEmulated, match=r"^not emulated: call\.uni at kernel\.cu:\d+: CUDA's own function malloc$"):
        printed(module, "allocates", Buffer("out", np.zeros(24, np.uint8)))


def test_without_an_echo_it_is_standard_output(module, capsys):
    launch(module, "plain", (1, 1, 1), (1, 1, 1), ())
    assert capsys.readouterr().out == "block (0, 0, 0), thread (0, 0, 0): no arguments, no end\n"


FUNCTIONS = r"""
#define CALLED __noinline__ __device__
struct Five { float of[5]; };
struct Mixed { double wide; char narrow; short middle[3]; };
typedef float (*Binary)(float, float);
CALLED float add(float x, float y) { return x + y; }
CALLED float multiply(float x, float y) { return x * y; }
CALLED float difference(float x, float y) { return add(x, -y); }
CALLED double add_wide(double x, double y) { return x + y; }
__device__ Binary table[3] = {add, multiply, difference};
__constant__ Binary fixed[2] = {multiply, add};
CALLED Five summed(Five x, Mixed y) { x.of[1] += x.of[2] + y.wide + y.narrow * y.middle[1]; return x; }
CALLED float picked(Five x, int i) { return x.of[i]; }
CALLED void reversed(float* x, int n) {
  float own[8];
  for (int i = 0; i < n; ++i) own[i] = x[i];
  for (int i = 0; i < n; ++i) x[i] = own[n - 1 - i];
}
CALLED bool both(bool a, signed char b, unsigned short c) { return a && b < c; }
CALLED float exchanged(float x) {
  __shared__ float all[32];
  __syncthreads();
  all[threadIdx.x] = x;
  __syncthreads();
  return all[31 - threadIdx.x];
}
CALLED float chosen(int which, const float* x) {
  switch (which) {
    case 0: return x[0] * 2; case 1: return x[1] - 5; case 2: return 17 / x[2]; case 3: return x[3] * x[3];
    case 4: return sqrtf(x[4]); case 5: return x[5] + x[0]; case 6: return -x[6]; case 7: return x[7] * 3 + 1;
  }
  return 3;
}
struct Shape { __device__ virtual float area(float x) const = 0; };
struct Square : Shape { __device__ float area(float x) const override { return x * x; } };
struct Strip : Shape {
  float width;
  __device__ explicit Strip(float w) : width(w) {}
  __device__ float area(float x) const override { return add(x * width, 0); }
};
CALLED void stores(float* x, int at) {
  x[at] = 1;
}
CALLED void passes_on(float* x, int at) {
  stores(x, at + 1);
}

extern "C" __global__ void direct(float* x, int n) {
  int i = threadIdx.x;
  Five five = {{x[0], x[1], x[2], x[3], x[4]}};
  Mixed mixed = {0.5, -3, {1, short(i), 3}};
  five = summed(five, mixed);
  float* out = x + 64 + i * 12;
  out[0] = add(x[i], x[31 - i]) + add(out[1], 1);
  out[1] = five.of[1];
  out[2] = picked(five, i % 5);
  for (int k = 0; k < 6; ++k) out[3 + k] = x[i + k % 4];
  reversed(out + 3, i % 6);
  out[9] = both(i & 1, i - 3, n);
  out[10] = exchanged(i) + 100 * exchanged(2 * i);
  out[11] = chosen(i % 9, x);
}
extern "C" __global__ void by_pointer(float* x, int n) {
  int i = threadIdx.x;
  x[i] = table[i % n](x[i], 3);
  x[i] += fixed[i & 1](x[i], 2);
  Binary q = i & 2 ? add : multiply;
  if (i != 5) x[i] = q(x[i], 0.5f);
}
extern "C" __global__ void virtually(float* x) {
  __shared__ double room[32][2];
  Shape* shape = threadIdx.x & 1 ? (Shape*)new (room[threadIdx.x]) Square : new (room[threadIdx.x]) Strip(7);
  __syncwarp();
  x[threadIdx.x] = shape->area(threadIdx.x);
}
extern "C" __global__ void calls_nothing(float* x, Binary which) {
  x[0] = which(x[0], x[1]);
}
extern "C" __global__ void too_far(float* x) {
  passes_on(x, 32);
}
CALLED int fibonacci(int n) { return n < 2 ? 1 : fibonacci(n - 1) + fibonacci(n - 2); }
CALLED int odd(int n);
namespace own { CALLED int even(int n) { return n ? odd(n - 1) : 1; } }
CALLED int odd(int n) { return n ? own::even(n - 1) : 0; }
extern "C" __global__ void calls_itself(int* x, int n) { *x = n ? fibonacci(n) : 7; }
extern "C" __global__ void calls_two_in_turn(int* x, int n) { *x = own::even(n); }
"""


def after(kernel: str, values: np.ndarray, *args, **options) -> np.ndarray:
    """The values after a launch of one warp."""
    values = values.copy()
    launch(compiled(FUNCTIONS), kernel, (1, 1, 1), (32, 1, 1), [Buffer("x", values.view(np.uint8)), *args], **options)
    return values


@pytest.mark.parametrize("fast", [True, False])
def test_functions_take_and_return_numbers_and_structs(fast):
    x = np.concatenate([np.arange(64) * 1.5 + 1, np.zeros(32 * 12)]).astype(np.float32)
    found = after("direct", x, 9, compiled=fast)[64:].reshape(32, 12)
    for i, row in enumerate(found):
        of_five = np.float32(x[1] + np.float32(x[2] + 0.5 - 3 * i))
        six = [x[i + k % 4] for k in range(6)]
        chosen = [x[0] * 2, x[1] - 5, 17 / x[2], x[3] ** 2, np.sqrt(x[4]), x[5] + x[0], -x[6], x[7] * 3 + 1, 3][i % 9]
        assert row[0] == x[i] + x[31 - i] + 1 and row[1] == of_five
        assert row[2] == [x[0], of_five, *x[2:5]][i % 5]
        assert row[3:9].tolist() == six[: i % 6][::-1] + six[i % 6 :]
        assert row[9] == (i % 2 and i - 3 < 9) and row[10] == 31 - i + 200 * (31 - i) and row[11] == chosen


@pytest.mark.parametrize("fast", [True, False])
def test_a_pointer_calls_the_function_it_is(fast):
    x = np.arange(32).astype(np.float32)
    found = after("by_pointer", x, 3, compiled=fast)
    for i in range(32):
        value = [x[i] + 3, x[i] * 3, x[i] - 3][i % 3]
        value += value + 2 if i & 1 else value * 2
        assert found[i] == (value if i == 5 else value + 0.5 if i & 2 else value * 0.5)


def test_a_virtual_function_is_that_of_the_object():
    found = after("virtually", np.zeros(32, np.float32))
    assert found.tolist() == [i * i if i & 1 else 7 * i for i in range(32)]


def test_a_fault_in_a_function_names_its_line_and_those_of_the_calls():
    with pytest.raises(Fault) as caught:
        after("too_far", np.zeros(32, np.float32))
    stores, passes, calls = (
        line_of(FUNCTIONS, text) for text in ("x[at] = 1", "stores(x, at + 1)", "passes_on(x, 32)")
    )
    assert caught.value.where == stores and str(caught.value).endswith(f", inlined at {passes}, inlined at {calls}")


@pytest.mark.parametrize("pointer", [0, (8 << 42) + 16 * 3, 12345])
def test_a_pointer_to_no_such_function_is_out_of_bounds(pointer: int):
    """The second is the address of `add_wide`, which takes something else."""
    with pytest.raises(Fault, match=rf"calls what is at {pointer:#x}, where the PTX has no function") as caught:
        after("calls_nothing", np.zeros(2, np.float32), pointer)
    assert caught.value.kind == "out_of_bounds"


def test_a_function_that_calls_itself_is_told_where_it_is_reached():
    assert after("calls_itself", np.zeros(1, np.int32), 0).tolist() == [7]
    with pytest.raises(NotEmulated) as refused:
        after("calls_itself", np.zeros(1, np.int32), 5)
    line = line_of(FUNCTIONS, "int fibonacci")
    assert str(refused.value) == (
        f"not emulated: call.uni at {line}: the function fibonacci calls itself; write its recursion as a loop"
    )
    with pytest.raises(NotEmulated, match="the function even calls itself; write its recursion as a loop"):
        after("calls_two_in_turn", np.zeros(1, np.int32), 5)


FORMS = """.func (.param .b32 out) plain(.param .b32 x)
{ .reg .b32 %a; ld.param.b32 %a, [x]; add.u32 %a, %a, 5; st.param.b32 [out], %a; ret; }
.func (.reg .b32 %out) old(.reg .b32 %x, .reg .b32 %y)
{ .reg .pred %q; setp.eq.u32 %q, %x, 3; mov.u32 %out, %y; @%q ret; sub.u32 %out, %x, %y; }
.func jumps(.param .b32 x) { bra behind; }
.func (.param .b32 out) table(.param .b32 x)
{ .reg .b32 %a; ld.param::func.b32 %a, [x]; { t: .branchtargets zero, one; brx.idx %a, t; }
zero: mov.u32 %a, 40; bra end; one: mov.u32 %a, 41; end: st.param::func.b32 [out+0], %a; ret; }
"""


def value_of(body: str) -> int:
    """What a body leaves in %r0, with the functions of `FORMS`."""
    out = np.zeros(1, np.uint32)
    text = ptx_kernel(f"{body} ld.param.u64 %rd0, [p0]; st.global.u32 [%rd0], %r0;", 1, declarations=FORMS)
    run(text, {"out": out}, block=1)
    return out[0]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (" mov.u32 %r1, 2; call (%r0), plain, (%r1);", 7),  # registers for .param
        (" call.uni (%r0), plain, (37);", 42),
        (" { .param .b32 a; st.param.b32 [a], 1; .param .b32 b; call (b), plain, (a); ld.param.b32 %r0, [b]; }", 6),
        (" call (%r0), old, (3, 8);", 8),
        (" mov.u32 %r1, 9; call (%r0), old, (%r1, 8);", 1),
        (" { .param .b32 a; .param .b32 b; st.param.b32 [a], 3; call (b), old, (a, 6); ld.param.b32 %r0, [b]; }", 6),
        (" mov.u32 %r0, 1; setp.eq.u32 %p0, %r0, 2; @%p0 call (%r0), plain, (%r0);", 1),
        (" mov.u32 %r0, 1; setp.eq.u32 %p0, %r0, 2; @!%p0 call (%r0), plain, (%r0);", 6),
        (" call (%r0), table, (0);", 40),
        (" call (%r0), table, (1);", 41),
        (" mov.u64 %rd1, table; t: .calltargets plain, table; mov.u32 %r0, 0; call (%r0), %rd1, (%r0), t;", 40),
        (" call (_), plain, (1); mov.u32 %r0, 3;", 3),
    ],
)  # fmt: skip
def test_calls_of_every_form(body: str, value: int):
    assert value_of(body) == value


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (" mov.u32 %r0, 1; call (%r1), %rd1, (%r0), shape;",
         "call at ptx:{}: a call through a pointer, of which the PTX says neither prototype nor targets"),
        (" call.uni __internal_sin, (%r0);", "call.uni at ptx:{}: CUDA's own function __internal_sin"),
        (" call.uni _Z5otherf, (%r0);",
         "call.uni at ptx:{}: the function other is not in this PTX; compile it together with the kernel"),
        (" behind: call jumps, (1);", "bra at ptx:8"),
        (" call (%r0), plain, (1, 2);", "PTX line {}: a call of plain with other parameters or results than it has"),
        (" { .param .b64 a; call (%r0), plain, (a); }", "PTX line {}: a call of plain with a of other than 4 bytes"),
    ],
)  # fmt: skip
def test_a_call_that_cannot_be_made_is_told(body: str, says: str):
    line = ptx_kernel("", 0, declarations=FORMS).count("\n") - 2
    with pytest.raises(NotEmulated) as refused:
        value_of(body)
    assert str(refused.value).startswith(f"not emulated: {says.format(line)}")
