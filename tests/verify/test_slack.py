"""What lies behind a group in its allocation is held to NUMERICS 8.5, whatever the oracle says of it."""

from dataclasses import replace

import numpy as np
import pytest

from harness.suite.suite import find_case
from harness.verify.expected import fields_of, make_inputs
from harness.verify.witness.fields import wrong_slack

GROUP = "grouped/recipe=per_token,stage=encode/128+384of1024x128/normal/eager"
BOTH = "grouped/recipe=per_token,shape_representation=varying_both_dims/128+256x512+128of131072/normal/eager"
PRODUCT = "gemm_grouped/epilogue=row_scaled/0+128+0of256x64x48/normal/eager"


@pytest.mark.parametrize("case_id", [GROUP, BOTH, PRODUCT])
def test_a_field_is_as_long_as_its_allocation(case_id):
    case = find_case(case_id)
    inputs, fields = make_inputs(case), fields_of(case)
    assert not wrong_slack(case, inputs, fields)
    for name, field in fields.items():
        for off in (-1, 1):
            wrong = fields | {name: replace(field, slack=field.slack + off)}
            assert name in wrong_slack(case, inputs, wrong)


@pytest.mark.parametrize(("case_id", "name"), [(GROUP, "rowwise_amax"), (PRODUCT, "a_amax"), (PRODUCT, "a_data")])
def test_what_is_given_is_as_long_as_its_allocation(case_id, name):
    case = find_case(case_id)
    inputs = make_inputs(case)
    assert name in wrong_slack(case, inputs | {name: inputs[name][:-1]}, fields_of(case))


@pytest.mark.parametrize(("name", "number"), [("a_data", 0x80), ("a_scale_inv", 0x7E), ("a_amax", 1.0)])
def test_no_number_lies_behind_the_groups_of_a_product(name, number):
    case = find_case(PRODUCT)
    inputs = make_inputs(case)
    array = np.array(inputs[name])
    array[-1] = number
    assert f"{name} has numbers" in wrong_slack(case, inputs | {name: array}, fields_of(case))
