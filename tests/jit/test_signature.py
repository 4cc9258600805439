"""What a `.cu` says about its kernels is what Python reads."""

import re

import pytest

from harness.errors import CompileError
from harness.jit.signature import read_signatures

KERNEL = """
// a comment with (brackets; and a semicolon) before
template <typename Dtype, Rounding rounding, bool rht, int sign_mask>
__global__ void __launch_bounds__(kThreads) quantize(
    const Dtype* __restrict__ input,  // (rows, cols), compact; in row order, or null: a comment has no power
    Optional<const u8> rowwise_data,  // (rows, cols/2)
    InPlace<float> amax,              // (1,)
    int rows, int cols, u64 seed) {
}
__global__ void plain(float* out) {}
"""


@pytest.fixture
def kernels(tmp_path):
    (tmp_path / "recipe.cu").write_text(KERNEL)
    return tmp_path


def test_template_parameters_are_named_after_flags(kernels):
    template = read_signatures("recipe", kernels)["quantize"].template
    assert [(p.flag, p.spell(v)) for p, v in zip(template, ("bf16", "sr", True, 55272), strict=True)] == [
        ("dtype", "bf16"),
        ("rounding", "Rounding::sr"),
        ("rht", "true"),
        ("sign_mask", "55272"),
    ]


def test_call_parameters_carry_type_name_and_whether_they_may_be_absent(kernels):
    call = read_signatures("recipe", kernels)["quantize"].call
    assert [(p.type, p.name, p.pointer, p.optional, p.in_place) for p in call] == [
        ("Dtype", "input", True, False, False),
        ("u8", "rowwise_data", True, True, False),
        ("float", "amax", True, False, True),
        ("int", "rows", False, False, False),
        ("int", "cols", False, False, False),
        ("u64", "seed", False, False, False),
    ]


def test_a_kernel_without_template_is_read_too_and_lines_are_right(kernels):
    plain = read_signatures("recipe", kernels)["plain"]
    assert plain.template == ()
    assert plain.where == "recipe.cu:10"


@pytest.mark.parametrize(
    "head",
    [
        "__global__ void __cluster_dims__(2, 2, 1) __launch_bounds__(256, 4)",
        "__global__ __launch_bounds__(threads<f(1)>(f(2)), 4)\nvoid __cluster_dims__(Cluster::kSide, 1)",
        "__global__ __cluster_dims__(4) __launch_bounds__(256) void",
        "__global__ void",
    ],
)
def test_a_kernel_may_have_attributes_before_its_name(tmp_path, head):
    (tmp_path / "recipe.cu").write_text(f"{head} k(float* out, int rows) {{}}")
    (kernel,) = read_signatures("recipe", tmp_path).values()
    assert (kernel.name, [parameter.name for parameter in kernel.call]) == ("k", ["out", "rows"])


@pytest.mark.parametrize("text", ["float*", "float", "Optional<float*> x", "Optional<float>", "Maybe<float> x"])
def test_a_parameter_that_cannot_be_read_is_refused_with_its_line(tmp_path, text):
    (tmp_path / "bad.cu").write_text(f"__global__ void k({text}) {{}}")
    sentence = f"bad.cu:1: parameter '{text}' is not of the form `type name`, `Optional<type> name` or `InPlace<type>"
    with pytest.raises(CompileError, match=re.escape(sentence)):
        read_signatures("bad", tmp_path)


def test_a_missing_source_is_one_sentence(tmp_path):
    with pytest.raises(CompileError, match=r"absent\.cu: cannot read the kernel's source"):
        read_signatures("absent", tmp_path)
