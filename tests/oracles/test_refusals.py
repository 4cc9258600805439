"""Every refusal stands in the suite as an exclusion and in the oracle as an error, and the two must agree."""

from __future__ import annotations

import itertools
import math

import pytest

from harness.contract.case import Case, Flags
from harness.errors import ContractError
from harness.expected.expected import oracle_of
from harness.suite import cover, shapes
from harness.suite.suite import load_suites

MOST = 5_000  # combinations of flags that are tried one by one
PRIMES = (7, 11)  # of more, each 7th or 77th: they divide no flag's number of values, so that any four meet in all ways
SUITES = [suite for suite in load_suites() if suite.file.exclude]


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.recipe)
def test_what_an_oracle_refuses_its_suite_excludes(suite):
    oracle = oracle_of(suite.recipe)
    axes, shape = suite.file.axes, "128x128x128" if suite.file.gemm else "128x128"
    refused = 0
    sizes = [len(values) for values in axes.values()]
    stride = 1
    for prime in PRIMES:
        assert all(size % prime for size in sizes)
        stride *= prime if math.prod(sizes) // stride > MOST else 1
    for row in itertools.islice(cover.product(sizes), 0, None, stride):
        flags = {flag: values[i] for (flag, values), i in zip(axes.items(), row, strict=True)}
        try:
            oracle.refuse(
                Case(
                    suite.recipe,
                    Flags(flags),
                    shapes.problem(suite.file, shape, flags),
                    dense_defaults=suite.dense_defaults,
                )
            )
        except ContractError as refusal:
            refused += 1
            assert suite.refusal(flags) is not None, refusal
    assert refused


@pytest.mark.parametrize("suite", load_suites(), ids=lambda suite: suite.recipe)
def test_no_set_asks_an_oracle_for_what_it_refuses(suite):
    """Sizes, too: an exclusion speaks of flags only."""
    oracle = oracle_of(suite.recipe)
    for name in suite.sets:
        for case in suite.cases(name):
            oracle.outputs(case)
