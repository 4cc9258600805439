"""Hardware conversions: counted right, there on sm_100a, and not on sm_90a."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from evidence import conversions
from evidence.conversions import Counted, count, in_ptx, in_sass
from harness.errors import UsageError
from harness.jit.compile import compile_kernel, ptx_of
from harness.jit.signature import read_signatures

FLAGS = {
    "dtype": "bf16", "block": "block_1x16", "scale_layout": "compact", "fast_math": False,
    "scale_format": "e4m3", "global_scale": True,
}  # fmt: skip

PTX = """
\t.loc\t1 cvt.rn.satfinite.e2m1x2.f32
\tcvt.rn.satfinite.e2m1x2.f32 \tbyte, %f1, %f2;
\t@%p1 cvt.rn.satfinite.relu.e2m1x2.f32 byte, %f1, %f2;
\t{ .reg .b16 h; cvt.rn.satfinite.e4m3x2.f32 h, %f1, %f2; mov.b16 %rs1, h; }
\tcvt.rn.f16x2.e4m3x2 \t%r1, %rs1;
\tcvt.rn.f16x2.e2m1x2 \t%r1, byte;
\tcvt.rn.f16x2.f32 \t%r1, %f1, %f2;
"""
SASS = """
        /*0230*/                   F2FP.SATFINITE.E2M1.F32.PACK_AB_MERGE_C R4, R4, R5, RZ ;
        /*0240*/                   F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C R4, R4, R5, RZ ;
        /*0250*/              @!P0 F2FP.F16.E4M3.UNPACK_B R4, R4 ;
        /*0260*/                   F2FP.F16.E2M1.UNPACK_B R4, R4 ;
        /*0270*/                   F2FP.BF16.F32.PACK_AB R4, R4, R5 ;
"""


def test_every_kind_is_counted_in_ptx_and_in_machine_code() -> None:
    assert in_ptx(PTX) == {"to e2m1": 2, "to e4m3": 1, "from e4m3": 1, "from e2m1": 1}
    assert in_sass(SASS) == dict.fromkeys(conversions.KINDS, 1)


@pytest.mark.parametrize(
    ("arch", "rounding", "there"), [("sm_100a", "rne", True), ("sm_100a", "sr", False), ("sm_90a", "rne", False)]
)
def test_a_quantizing_kernel_converts_codes_in_hardware_where_there_is_some(arch, rounding, there) -> None:
    signature = read_signatures("per_tensor")["per_tensor_encode_rowwise"]
    counted = count(compile_kernel(signature, {**FLAGS, "rounding": rounding}, ptx_of(arch)))
    assert bool(counted.ptx["to e2m1"]) is there
    assert counted.ptx["to e4m3"] > 0
    assert counted.family == f"per_tensor_encode_rowwise {rounding}"


def counted(expression: str, arch: str, codes: int, in_machine_code: int | None = None) -> Counted:
    sass = None if in_machine_code is None else Counter({"to e2m1": in_machine_code})
    return Counted(expression, arch, Counter({"to e2m1": codes} if codes else {}), sass)


def test_a_row_is_a_kernel_with_its_fewest_and_most() -> None:
    found = [
        counted("k<bf16, Rounding::rne>", "sm_100a", 4, 4), counted("k<fp16, Rounding::rne>", "sm_100a", 8, 7),
        counted("k<bf16, Rounding::rne>", "sm_90a", 0), counted("amax<bf16>", "sm_100a", 0, 0),
    ]  # fmt: skip
    (row,) = conversions.table(found).to_dict("records")
    assert (row["kernel"], row["instantiations"], row["to e2m1"], row["to e4m3"]) == ("k rne", 2, "4-8", "0")
    assert (row["e2m1 on sm_90a"], row["machine code"]) == (0, "1/2 as PTX")
    assert [each.expression for each in conversions.differing(found)] == ["k<fp16, Rounding::rne>"]
    assert conversions.narrowing_differs(found) == conversions.differing(found)
    assert len(conversions.rows_of(found)) == 3
    assert "of 3 instantiations that were disassembled, 2 have" in conversions.page("c", "13.5", found)


def test_a_decoding_that_nothing_reads_may_be_dropped() -> None:
    found = [Counted("k", "sm_100a", Counter({"to e4m3": 2, "from e4m3": 2}), Counter({"to e4m3": 2}))]
    assert conversions.differing(found) == found
    assert conversions.narrowing_differs(found) == []
    assert "of the others (k) the assembler dropped" in conversions.page("c", "13.5", found)


def test_a_disassembler_that_refuses_is_a_sentence(tmp_path) -> None:
    program = tmp_path / "nvdisasm"
    program.write_text("#!/bin/sh\necho unknown architecture >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(UsageError, match=r"cannot read a\.cubin: unknown architecture"):
        conversions._disassembled(str(program), Path("a.cubin"))
