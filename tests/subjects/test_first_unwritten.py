"""The place of a byte that was never written, in every form of an output."""

from __future__ import annotations

import numpy as np
import pytest

from harness.contract.case import Case
from harness.expected.expected import fields_of
from harness.oracles import layout
from harness.subjects.audit.findings import place
from harness.suite.suite import find_case

DENSE = "per_tensor/stage=encode/48x80/normal/eager"
SWIZZLED = "per_tensor/stage=encode,scale_layout=swizzled/48x80/normal/eager"
GROUP = "grouped/outputs=rowwise/128+256x256/normal/eager"
GEMM = "gemm/default/64x64x32/normal/eager"


@pytest.mark.parametrize(
    ("case_id", "name", "index", "sentence"),
    [
        (DENSE, "rowwise_data", (2, 3), "[2, 3], from input [2, 6]"),
        (DENSE, "columnwise_data", (2, 3), "[2, 3], from input [6, 2]"),
        (DENSE, "rowwise_scale_inv", (47, 4), "[47, 4], from input [47, 64]"),
        (DENSE, "rowwise_scale_inv", (47, 5), "[47, 5], in the padding"),
        (DENSE, "rowwise_scale_inv", (48, 0), "[48, 0], in the padding"),
        (SWIZZLED, "rowwise_scale_inv", (33, 2), "[33, 2], from input [33, 32]"),
        (SWIZZLED, "rowwise_scale_inv", (33, 7), "[33, 7], in the padding"),
    ],
)
def test_a_place(case_id: str, name: str, index: tuple[int, int], sentence: str):
    case = find_case(case_id)
    field = fields_of(case)[name]
    mask = np.zeros(field.shape, np.uint8)
    mask[index] = 1
    mask = layout.swizzle(mask) if field.swizzled else mask
    assert place(case, field, int(mask.reshape(-1).argmax())) == sentence


def test_a_place_in_a_group_names_its_tensor():
    case = find_case(GROUP)
    data, amax = fields_of(case)["rowwise_data"], fields_of(case)["rowwise_amax"]
    assert place(case, data, 128 * 128 - 1) == "[127, 127] of tensor 0, from input [127, 254]"
    assert place(case, data, 128 * 128 + 130) == "[1, 2] of tensor 1, from input [1, 4]"
    assert place(case, amax, 7).startswith("[")


def test_an_entry_of_a_product_comes_from_no_single_input():
    case: Case = find_case(GEMM)
    name, field = next(iter(fields_of(case).items()))
    size = np.dtype(field.dtype).itemsize
    assert place(case, field, size * (field.shape[1] + 3) + 1) == "[1, 3]", name
