"""What may be wrong with a pipeline in YAML: each mistake is a sentence with its line."""

from __future__ import annotations

import pytest
from suite_files import assert_mistake, written

from harness.errors import SuiteError, UsageError
from harness.suite.stages import stages_of
from harness.suite.suite import find_case

TEXT = """\
recipe: layer
contract: NUMERICS 10
gemm: true
axes:
  epilogue: [per_tensor, per_token]
  rounding: [rne, sr]
exclude:
  - when: {epilogue: per_token, rounding: sr}
    because: a reason of the test's own
pipeline:
  - stage: x
    recipe: per_tensor
    when: {epilogue: per_tensor}
    flags: {rht: true}
    extents: [M, K]
  - stage: x
    recipe: per_token
    when: {epilogue: per_token}
    flags: {rht: true}
    extents: [M, K]
  - stage: w
    recipe: per_tensor
    when: {epilogue: per_tensor}
    flags: {rounding: rne}
    extents: [N, K]
    given: true
  - stage: w
    recipe: per_token
    when: {epilogue: per_token}
    flags: {weight_2d: true}
    extents: [N, K]
    given: true
  - stage: y
    recipe: gemm_ordered
    extents: [M, K, N]
    a: x
    b: w
sets:
  smoke: [{axes: default, shapes: [[16, 32, 48]], inputs: [normal]}]
  full: [{cover: product, shapes: [[128, 128, 256]], inputs: [normal]}]
  bench: [{axes: default, shapes: [[16, 16, 16]], inputs: [normal]}]
"""


def test_a_pipeline_makes_cases_like_any_other_suite(tmp_path):
    suite = written(tmp_path, TEXT)
    assert [case.id for case in suite.cases("smoke")] == ["layer/default/16x32x48/normal/eager"]
    assert [case.variant for case in suite.cases("full")] == ["default", "epilogue=per_token", "rounding=sr"]
    assert suite.excluded("full") == {"a reason of the test's own": 1}


def test_a_stage_takes_the_flags_it_shares_and_keeps_its_own(tmp_path):
    suite = written(tmp_path, TEXT)
    x, w, y = stages_of(suite.find("layer/rounding=sr/16x32x48/normal/graph"), suite.file.pipeline)
    assert (x.case.variant, w.case.variant, y.case.variant) == ("rht=true,rounding=sr", "default", "default")
    assert (x.case.shape, w.case.shape, y.case.shape) == ("16x32", "48x32", "16x32x48")
    assert {stage.case.mode for stage in (x, w, y)} == {"graph"}
    assert (x.given, w.given, y.given) == (False, True, False)
    x, w, y = stages_of(suite.find("layer/epilogue=per_token/128x128x128/normal/eager"), suite.file.pipeline)
    assert (x.case.recipe, w.case.variant, y.case.flags.epilogue) == ("per_token", "weight_2d=true", "per_token")


MISTAKES = {
    "no such recipe": ("recipe: gemm_ordered", "recipe: gemm_orderd", 34, "did you mean 'gemm_ordered'?"),
    "a pipeline in a pipeline": ("recipe: gemm_ordered", "recipe: forward", 34, "'forward' with kernels of its own"),
    "itself": ("recipe: gemm_ordered", "recipe: layer", 34, "there is no recipe 'layer' with kernels of its own"),
    "a group": ("recipe: gemm_ordered", "recipe: gemm_grouped", 34, "gemm_grouped takes a group of tensors"),
    "no matrix": ("recipe: per_tensor", "recipe: swizzle", 12, "swizzle quantizes no matrix"),
    "no operands": (
        "recipe: per_tensor", "recipe: gemm_ordered", 12,
        "gemm_ordered multiplies two tensors; name the stages they come from, `a:` and `b:`",
    ),
    "operands of a quantizer": ("recipe: gemm_ordered", "recipe: per_tensor", 34, "per_tensor multiplies nothing"),
    "no such stage": ("a: x", "a: v", 36, "stage 'y' reads 'v', and there is no stage of that name"),
    "a later stage": ("a: x", "a: y", 36, "stage 'y' reads 'y', which does not come before it"),
    "one operand": ("    b: w\n", "", 33, "a stage has both operands, 'a' and 'b', or neither"),
    "two of a name": ("stage: w", "stage: x", 21, "two stages are called 'x' under the same flags"),
    "unknown flag": ("{weight_2d: true}", "{weight_3d: true}", 30, "did you mean 'weight_2d'?"),
    "unknown value": ("{weight_2d: true}", "{rounding: up}", 30, "flag rounding has no value 'up'"),
    "unknown condition": ("when: {epilogue: per_tensor}", "when: {epilog: per_tensor}", 13, "did you mean 'epilogue'?"),
    "a shared value the recipe lacks": (
        "rounding: [rne, sr]", "rounding: [rne, sr, up]", 12,
        "per_tensor takes rounding from the pipeline, and there flag rounding has no value 'up'",
    ),
    "a flag without a use": (
        "rounding: [rne, sr]", "rounding: [rne, sr]\n  mood: [good]", 7, "no stage has, or depends on, a flag 'mood'",
    ),
    "extents": ("extents: [M, K, N]", "extents: [M, N]", 33, "a stage with operands has three extents, as [M, K, N]"),
    "an extent": ("extents: [M, K, N]", "extents: [M, K, L]", 35, "has no 'L'"),
    "a given product": ("    b: w\n", "    b: w\n    given: true\n", 33, "only a quantized tensor can be given"),
    "a tensor of no stage": (
        "    given: true\n", "    of: v\n", 26, "stage 'w' reads 'v', and there is no stage of that",
    ),
    "a given one of another": ("    given: true\n", "    given: true\n    of: x\n", 21, "a stage `of` another is run"),
    "a product of another": (
        "    b: w\n", "    b: w\n    of: x\n", 33, "a stage `of` another is run, and is no product",
    ),
    "flags that contradict the stage": (
        "{rht: true}\n", "{rht: true}\n    also: [{when: {epilogue: per_token}, flags: {rht: false}}]\n", 15,
        "these flags contradict those of the stage, so it never has them",
    ),
    "a flag of no recipe": (
        "{rht: true}\n", "{rht: true}\n    also: [{when: {rounding: sr}, flags: {rth: false}}]\n", 15,
        "per_tensor has no flag 'rth'; did you mean 'rht'?",
    ),
    "an unknown key of such flags": (
        "{rht: true}\n", "{rht: true}\n    also: [{when: {rounding: sr}, flag: {rht: false}}]\n", 15,
        "unknown key 'flag'; did you mean 'flags'?",
    ),
    "an unknown key": ("given: true", "givn: true", 26, "unknown key 'givn'; did you mean 'given'?"),
    "both kinds": (
        "pipeline:\n", "launches: [{kernel: layer}]\npipeline:\n", 1,
        "a suite has either the key 'launches' or the key 'pipeline'",
    ),
    "not a product": ("gemm: true\n", "", 1, "the shapes of a pipeline are those of a product"),
    "a wrong M": ("[[16, 32, 48]]", "[[24, 32, 48]]", 39, "M = 24 is not a positive multiple of 16"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_a_pipeline_is_one_sentence(tmp_path, old, new, line, sentence):
    assert_mistake(tmp_path, TEXT, (old, new), sentence, line)


def test_flags_may_depend_on_those_of_the_pipeline(tmp_path):
    further = "[{when: {rounding: [rne, sr]}, flags: {rht: false}}, {when: {rounding: sr}, flags: {dtype: fp16}}]"
    suite = written(tmp_path, TEXT.replace("{rht: true}\n", f"{{rht: true}}\n    also: {further}\n", 1))
    for variant, dtype in (("default", "bf16"), ("rounding=sr", "fp16"), ("epilogue=per_token", "bf16")):
        x = stages_of(suite.find(f"layer/{variant}/16x32x48/normal/eager"), suite.file.pipeline)[0]
        assert (x.case.flags.rht, x.case.flags.dtype) == (variant == "epilogue=per_token", dtype)


# name: the change, the sentence, and the case that is asked for where another would not show it
REFUSED = {
    "a stage that is excluded": (
        "{rounding: rne}", "{block: block_16x16, rht: true}", "stage w: per_tensor excludes block=block_16x16,rht=true",
    ),
    "a copy": ("{rounding: rne}", "{outputs: columnwise}", "operand B has no rowwise_data, which layout tn reads"),
    "an amax": ("{rounding: rne}", "{stage: encode}", "operand B has no rowwise_amax"),
    "extents that do not meet": (
        "extents: [N, K]", "extents: [K, N]", "stage y: gemm_ordered: operand B has the K 48; this GEMM reads 32",
    ),
    "a recipe of another epilogue": (
        "recipe: per_tensor\n    when: {epilogue: per_tensor}\n    flags: {rounding: rne}\n",
        "recipe: per_token\n    when: {epilogue: per_tensor}\n    flags: {rounding: rne, rht: false}\n",
        "operand B was quantized by per_token; with the epilogue per_tensor it must", "default/128x128x128/normal",
    ),
    "a stage that the flags leave out": (
        "when: {epilogue: per_token}\n    flags: {weight_2d: true}",
        "when: {epilogue: per_token, rounding: sr}\n    flags: {weight_2d: true}",
        "stage y reads w, and with epilogue=per_token there is no such stage before it; there are x",
        "epilogue=per_token/128x128x128/normal",
    ),
    "a shape": (
        "a: x", "a: x", "M = 24 is not a positive multiple of 16; the nearest is 32",
        "epilogue=per_token/24x128x128/normal",
    ),
    "an input of operands": (
        "a: x", "a: x", "exact_sum is drawn as the bytes of operands, and a pipeline quantizes its own",
        "default/16x32x48/exact_sum",
    ),
    "a file that is too small": (
        "a: x", "a: x", "smaller than the 304x128",
        "default/16x128x304/file:suites/data/minilm_sample.safetensors#ffn_up.weight",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_case_whose_stages_do_not_fit_is_refused_in_one_sentence(tmp_path, name):
    old, new, sentence, *case = REFUSED[name]
    assert old in TEXT
    suite = written(tmp_path, TEXT.replace(old, new, 1))
    with pytest.raises((SuiteError, UsageError)) as caught:
        suite.find(f"layer/{case[0] if case else 'default/16x32x48/normal'}/eager")
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def stage_of(text: str, name: str) -> str:
    """A stage that swizzles, or quantizes once more, before the product."""
    return TEXT.replace("  - stage: y\n", text + "  - stage: y\n").replace("a: x", f"a: {name}")


SWIZZLE = "  - stage: xs\n    recipe: swizzle\n    extents: [M, K]\n    of: x\n"
DECODED = "  - stage: xs\n    recipe: dequantize\n    extents: [M, K]\n    of: x\n"
AGAIN = "  - stage: xs\n    recipe: per_tensor\n    when: {epilogue: per_tensor}\n    extents: [M, K]\n    of: x\n"


def test_a_product_takes_the_layout_its_operands_have_unless_its_stage_says_another(tmp_path):
    turned = TEXT.replace("{rounding: rne}", "{rounding: rne, scale_layout: swizzled}")
    *_, y = stages(tmp_path, turned)
    assert (y.case.flags.a_scale_layout, y.case.flags.b_scale_layout) == ("compact", "swizzled")
    said = turned.replace("recipe: gemm_ordered\n", "recipe: gemm_ordered\n    flags: {b_scale_layout: compact}\n")
    with pytest.raises(SuiteError, match="operand B has the scale layout swizzled; this GEMM reads compact"):
        stages(tmp_path, said)


def stages(folder, text, flags="default"):
    suite = written(folder, text)
    return stages_of(suite.find(f"layer/{flags}/16x32x48/normal/eager"), suite.file.pipeline)


def test_a_stage_moves_the_scales_of_another_and_a_product_reads_them(tmp_path):
    x, _, xs, y = stages(tmp_path, stage_of(SWIZZLE, "xs"))
    assert (xs.reads, xs.draws, xs.multiplies) == ({"scale_inv": "x.rowwise_scale_inv"}, False, False)
    assert {y.reads[name] for name in ("a_data", "a_scale_inv", "a_amax")} == {
        "x.rowwise_data", "xs.swizzled_scale_inv", "x.rowwise_amax"
    }  # fmt: skip
    assert (y.case.flags.a_scale_layout, y.case.flags.b_scale_layout) == ("swizzled", "compact")
    assert x.draws and y.multiplies


def test_a_tensor_is_quantized_once_more(tmp_path):
    *_, again, y = stages(tmp_path, stage_of(AGAIN, "x"))
    assert (again.reads, again.draws) == ({"input": "x"}, False)
    *_, y = stages(tmp_path, stage_of(AGAIN, "xs").replace("  - stage: y\n", "  - stage: y\n", 1))
    assert y.reads["a_data"] == "xs.rowwise_data"


@pytest.mark.parametrize(
    ("stage", "old", "new", "sentence"),
    [
        (SWIZZLE, "extents: [M, K]\n    of", "extents: [N, K]\n    of", "stage xs: it is of 48x32, and x is of 16x32"),
        (SWIZZLE, "{rht: true}", "{rht: true, outputs: columnwise}", "stage xs: x has no rowwise_scale_inv to move"),
        (
            SWIZZLE, "{rht: true}", "{rht: true, scale_layout: swizzled}",
            "xs: rowwise_scale_inv of x is swizzled already",
        ),
        (
            SWIZZLE.replace("    extents", "    flags: {direction: columnwise}\n    extents"), "a: x", "a: x",
            "stage y: operand A is read rowwise, and xs moves the columnwise scales",
        ),
        (
            SWIZZLE.replace("    extents", "    flags: {to: compact}\n    extents"), "a: x", "a: x",
            "this stage has to=compact",
        ),
        (DECODED, "a: x", "a: x", "operand A was quantized by dequantize; with the epilogue per_tensor"),
        (DECODED, "{rht: true}", "{rht: true, outputs: columnwise}", "stage xs: x has no rowwise_data to decode"),
        (DECODED, "extents: [M, K]\n    of", "extents: [N, K]\n    of", "stage xs: it is of 48x32, and x is of 16x32"),
        (AGAIN, "extents: [M, K]\n    of", "extents: [N, K]\n    of", "stage xs: it is of 48x32, and x is of 16x32"),
        (AGAIN.replace("[M, K]", "[N, K]"), "of: x", "of: w", "stage xs: w has no tensor to quantize once more"),
        (
            AGAIN.replace("    extents", "    flags: {dtype: fp16}\n    extents"), "a: x", "a: x",
            "the tensor of x is bf16",
        ),
    ],
)  # fmt: skip
def test_a_stage_of_another_that_does_not_fit_it_is_named(tmp_path, stage, old, new, sentence):
    text = stage_of(stage, "xs")
    assert old in text
    with pytest.raises(SuiteError) as caught:
        stages(tmp_path, text.replace(old, new, 1))
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("recipe", "shape", "sentence"),
    [
        ("forward", "16x1073741824x16", "forward: stage y: gemm: K = 1073741824 is beyond 1073676288"),
        ("backward", "16x16x1073741824", "backward: stage dx: gemm: K = 1073741824 is beyond 1073676288"),
        ("backward", "1073741824x16x16", "backward: stage dw: gemm: K = 1073741824 is beyond 1073676288"),
        ("forward_grouped", "0+128x1073741824x16", "tensor 1 ends at cols = 2147483648 of the group"),
        ("forward_grouped", "128x1073741824x16", "stage y: gemm_grouped: tensor 0: K = 1073741824 is beyond"),
        ("forward_grouped", "2*128x16x1073741824", "N of 2 products is at most 1073709056"),
        ("backward_grouped", "128x16x1073741824", "stage dx: gemm_grouped: tensor 0: K = 1073741824 is beyond"),
        ("backward_grouped", "0+1073741824x16x16", "stage dw: gemm_grouped: tensor 1: K = 1073741824 is beyond"),
        ("backward_grouped", "128of1073741824x16x16", "stage dw: gemm_grouped: the capacity along K = 1073741824 is"),
    ],
)
def test_a_product_beyond_32_bits_is_named(recipe, shape, sentence):
    with pytest.raises(UsageError, match=sentence):
        find_case(f"{recipe}/default/{shape}/normal/eager")


@pytest.mark.parametrize("shape", ["16x1073676288x16", "1073676288x16x16", "16x16x1073676288"])
def test_the_largest_products_are_cases(shape):
    assert find_case(f"backward/default/{shape}/normal/eager").shape == shape


def test_rotations_that_do_not_cancel_are_refused(tmp_path):
    turned = TEXT.replace("recipe: gemm_ordered", "recipe: gemm_ordered\n    flags: {layout: nt}")
    turned = turned.replace("extents: [M, K, N]", "extents: [K, M, N]").replace("extents: [N, K]", "extents: [M, N]")
    suite = written(tmp_path, turned)
    with pytest.raises(SuiteError) as caught:
        suite.find("layer/default/16x32x48/normal/eager")
    assert "stage y: operand A, x, is rotated with sign_mask 55272 and operand B, w, is not rotated" in str(
        caught.value
    )
    masks = turned.replace("{rounding: rne}", "{rounding: rne, rht: true, sign_mask: 0xFFFF}")
    with pytest.raises(SuiteError, match="sign_mask 55272 and operand B, w, is rotated with sign_mask 65535"):
        written(tmp_path, masks).find("layer/default/16x32x48/normal/eager")
    same = turned.replace("{rounding: rne}", "{rounding: rne, rht: true}")
    assert written(tmp_path, same).find("layer/default/16x32x48/normal/eager")
