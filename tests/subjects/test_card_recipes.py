"""Cards of whole recipes: two kernels and their scratch, what is given to one, and bytes kept in other forms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from harness.device.emulator import EmulatorDevice
from harness.errors import UsageError
from harness.records.claims import wrong_case
from harness.records.possible import impossible
from harness.records.records import Finished
from harness.records.seal import seal
from harness.subjects.card.card import read_card
from harness.subjects.card.device import with_card
from harness.subjects.card.verify import verify_card
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict

CASE = "per_tensor/outputs=rowwise/48x80/normal/eager"
SWIZZLE = "swizzle/default/48x80/normal/eager"
COMPACT = "swizzle/to=compact/48x80/normal/eager"
AMAX = """\
  - kernel: per_tensor_amax<bf16>
    grid: 3
    block: 256
    arguments: [{array: input}, {array: rowwise_amax}, {u64: 0}, {array: amax_state}, {i32: rows}, {i32: cols}]
"""
ENCODE = """\
  - kernel: per_tensor_encode_rowwise<bf16, Block(0), Rounding::rne, ScaleLayout::compact, false, ScaleFormat(0), true>
    grid: [(cols + 511) // 512, (rows + 127) // 128 * 4]
    block: 256
    arguments: [{array: input}, {array: rowwise_amax}, {array: rowwise_data}, {array: rowwise_scale_inv}, {i32: rows},
                {i32: cols}, {u64: seed}, {u32: offset}]
"""
FLAGS = "flags: {outputs: rowwise, rht: false, rounding: rne, dtype: bf16, block: block_1x16, stage: full}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def judged(source: str, launches: str, more: str = "", case: str = CASE) -> Result:
    recipe = case.partition("/")[0]
    Path("own.cu").write_text(source)
    Path("card.yaml").write_text(f"code: own.cu\nrecipe: {recipe}\n{more}launches:\n{launches}")
    card = read_card("card.yaml")
    card.check([find_case(case)])
    return verify_card(find_case(case), with_card(EmulatorDevice(), card))


def accepted(result: Result) -> str:
    """What a merge would say of the record."""
    record = Finished.model_validate(result.to_record()) if hasattr(Finished, "model_validate") else result
    return wrong_case(record) or impossible(result.to_record(), timed=False)


OURS = '#include "per_tensor.cu"\n'


def test_two_kernels_and_their_scratch():
    result = judged(OURS, AMAX + ENCODE, f"{FLAGS}scratch: {{amax_state: 16}}\n")
    assert result.verdict is Verdict.PASS, result.story
    assert accepted(result) == ""
    dirty = AMAX.replace("per_tensor_amax<bf16>", "dirty").replace("{array: amax_state}", "{array: amax_state}")
    source = OURS + (
        'extern "C" __global__ void dirty(const bf16*, float*, float*, u32* state, int, int) { *state = 7; }\n'
    )
    result = judged(source, AMAX + ENCODE + dirty, f"{FLAGS}scratch: {{amax_state: 16}}\n")
    assert result.verdict is not Verdict.PASS


def test_an_amax_that_another_kernel_would_have_written():
    result = judged(OURS, ENCODE, f"{FLAGS}given: [rowwise_amax]\n")
    assert result.verdict is Verdict.CONVENTION, result.story
    assert result.reason == "given: rowwise_amax is the oracle's"
    assert accepted(result) == ""
    with pytest.raises(UsageError, match="every output of per_tensor is given"):
        judged(OURS, ENCODE, f"{FLAGS}given: [rowwise_amax, rowwise_data, rowwise_scale_inv]\n")


@pytest.mark.parametrize("form, expression", [("encode", "2688.0f / v"), ("decode", "1.0f / (2688.0f / v)")])
def test_an_amax_in_the_form_of_a_scale(form: str, expression: str):
    source = OURS + f'extern "C" __global__ void form(float* amax) {{ float v = *amax; *amax = {expression}; }}\n'
    turned = "  - kernel: form\n    arguments: [{array: rowwise_amax}]\n"
    more = f"{FLAGS}scratch: {{amax_state: 16}}\n"
    declared = f"{more}arrays: {{rowwise_amax: {{form: {form}}}}}\n"
    assert judged(source, AMAX + ENCODE + turned, declared).verdict is Verdict.PASS
    assert judged(source, AMAX + ENCODE + turned, more).verdict is Verdict.MISMATCH
    assert judged(source, AMAX + ENCODE, declared).verdict is Verdict.MISMATCH


UNPADDED = """
extern "C" __global__ void rows_of(const unsigned char* tiles, unsigned char* out, int rows, int cols) {
  int padded = (cols + 3) / 4;
  for (int i = threadIdx.x; i < rows * cols; i += 32) {
    int r = i / cols, c = i % cols;
    out[i] = tiles[(r / 128 * padded + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4];
  }
}
"""


def test_scales_without_padding_are_a_convention():
    launched = """\
  - kernel: rows_of
    block: 32
    arguments: [{array: swizzled_scale_inv}, {array: scale_inv}, {i32: rows}, {i32: cols // 16}]
"""
    result = judged(UNPADDED, launched, "arrays: {scale_inv: {padding: absent}}\n", COMPACT)
    assert result.verdict is Verdict.CONVENTION, result.story
    assert result.reason == "padding: 784 bytes of scale_inv are absent"
    assert result.bytes_compared == 3 * 48 * 5
    assert accepted(result) == ""
    whole = judged(UNPADDED, launched, "arrays: {scale_inv: {padding: absent}}\n", COMPACT.replace("48x80", "128x64"))
    assert (whole.verdict, whole.reason) == (Verdict.PASS, "")  # where there is no padding, none is absent
    wrong = UNPADDED.replace("c % 4];", "c % 4] ^ (i == 7);")
    result = judged(wrong, launched, "arrays: {scale_inv: {padding: absent}}\n", COMPACT)
    assert result.verdict is Verdict.MISMATCH and "1 of 240" in result.story


ZEROS = """
extern "C" __global__ void unsigned_zeros(unsigned char* codes, int n, int by) {
  for (int i = threadIdx.x; i < n; i += 32) {
    if ((codes[i] & 0x0F) == 0x08) codes[i] ^= 0x08;
    if ((codes[i] & 0xF0) == 0x80) codes[i] ^= 0x80;
    if (by && i == 5) codes[i] ^= 1;
  }
}
"""


def test_a_declared_convention_explains_its_bytes_and_no_other():
    def launched(by: int) -> str:
        return f"""{AMAX}{ENCODE}  - kernel: unsigned_zeros
    block: 32
    arguments: [{{array: rowwise_data}}, {{i32: elements // 2}}, {{i32: {by}}}]
"""

    more, case = f"{FLAGS}scratch: {{amax_state: 16}}\n", CASE
    assert judged(OURS + ZEROS, launched(0), more, case).verdict is Verdict.MISMATCH
    declared = f"{more}conventions: [sign of zero]\n"
    result = judged(OURS + ZEROS, launched(0), declared, case)
    assert result.verdict is Verdict.CONVENTION and result.reason.startswith("sign of zero: ")
    assert accepted(result) == ""
    assert judged(OURS + ZEROS, launched(1), declared, case).verdict is Verdict.MISMATCH
    given = launched(1).replace(AMAX, "")
    result = judged(OURS + ZEROS, given, f"{FLAGS}given: [rowwise_amax]\nconventions: [sign of zero]\n", case)
    assert result.verdict is Verdict.MISMATCH and "rowwise_data" in result.story


BY_MAP = """
struct alignas(64) Map { char bytes[128]; };
extern "C" __global__ void by_map(const __grid_constant__ Map map, unsigned char* out, int cols) {
  __shared__ alignas(128) unsigned char chunk[128];
  __shared__ alignas(8) unsigned long long barrier;
  unsigned smem = (unsigned)__cvta_generic_to_shared(chunk), bar = (unsigned)__cvta_generic_to_shared(&barrier);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(bar));
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 128;" :: "r"(bar) : "memory");
    asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2}], [%3];"
                 :: "r"(smem), "l"(&map), "r"(128 * (int)blockIdx.x), "r"(bar) : "memory");
  }
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra again; }"
               :: "r"(bar) : "memory");
  int i = 128 * blockIdx.x + threadIdx.x, row = i / cols, col = i % cols;
  out[((row / 128) * (cols / 4) + col / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + col % 4] = chunk[threadIdx.x];
}
"""
COPIED = """\
  - kernel: by_map
    grid: (rows + 127) // 128 * ((cols // 16 + 3) // 4 * 4)
    block: 128
    arguments:
      - map: {array: scale_inv, type: uint8, box: [128],
              extents: [(rows + 127) // 128 * 128 * ((cols // 16 + 3) // 4 * 4)]}
      - array: swizzled_scale_inv
      - i32: (cols // 16 + 3) // 4 * 4
"""


def test_a_tensor_map():
    result = judged(BY_MAP, COPIED, case=SWIZZLE)
    assert result.verdict is Verdict.PASS, result.story


@pytest.mark.parametrize(
    "old, new, sentence",
    [
        ("box: [128]", "box: [64]", "by_map"),
        ("type: uint8", "type: uint16", "out of bounds"),
        ("box: [128]", "box: [1000]", "card.yaml:4: the tensor map of 'scale_inv': a box of 1000, where 1 to 256"),
        ("box: [128]", "box: [24]", "card.yaml:4: the tensor map of 'scale_inv': a box whose rows have 24 elements"),
        ("box: [128]", "swizzle: 64B, box: [128]", "more than the 64 of swizzle 64B"),
    ],
)
def test_a_wrong_tensor_map(old: str, new: str, sentence: str):
    assert old in COPIED
    result = judged(BY_MAP, COPIED.replace(old, new), case=SWIZZLE)
    of_the_card = sentence.startswith(("card.yaml", "more than"))  # what the driver refuses is never seen by a kernel
    assert (result.verdict is Verdict.SETUP_ERROR) is of_the_card and sentence in result.reason, result.reason
    assert result.verdict.exit_code == (64 if of_the_card else 1)


def test_a_card_and_its_code_are_of_the_seal_of_a_run():
    Path("code").mkdir()
    Path("code/own.cu").write_text(UNPADDED)
    Path("card.yaml").write_text("code: code/own.cu\nrecipe: swizzle\n")
    before = sealed()
    assert [re.sub(".*/", "", name) for name in before] == ["card.yaml", "own.cu"]
    Path("code/own.cu").write_text(UNPADDED + "\n")
    assert sealed() != before


def sealed() -> Mapping[str, str]:
    return {name: digest for name, digest in seal(subject="card.yaml").items() if name.startswith("subject ")}


def test_an_input_stays_what_it_is():
    source = (
        'extern "C" __global__ void k(unsigned char* in, unsigned char* out) { in[threadIdx.x] = 1; out[0] = 2; }\n'
    )
    launched = "  - kernel: k\n    arguments: [{array: scale_inv}, {array: swizzled_scale_inv}]\n"
    result = judged(source, launched, case=SWIZZLE)
    assert result.verdict is Verdict.OUT_OF_BOUNDS and "buffer 'scale_inv', which is read-only" in result.reason
    assert np.all(np.array(result.targets) == "sm_100a")
