"""Contests compare our kernels with the right peers, on the right shapes."""

from __future__ import annotations

import pytest

from evidence.peers import contests
from evidence.peers.contests import COMPILED, COMPILED_ON, LARGEST
from harness.errors import UsageError
from harness.subjects import subject as subjects


def test_every_shape_of_the_sweep_has_its_contests_and_the_largest_more():
    everything = contests.contests()
    found = [contest for contest in everything if not contest.case.is_gemm]
    shapes = [contest.case.shape for contest in found]
    assert shapes[0] == LARGEST and len(set(shapes)) == 18
    assert {contest.case.shape for contest in found if COMPILED in contest.peers} == set(COMPILED_ON)
    assert shapes.count(LARGEST) == len(contests.SWEPT) + len(contests.LARGE)
    assert shapes.count("1024x2048") == len(contests.SWEPT)
    assert len({contest.case.seed for contest in everything}) == 1, "all take corners of one input"
    assert {contest.case.mode for contest in everything} == {"graph"}


def test_every_product_is_held_by_itself_and_by_decoding_for_cublas_against_the_same_peers():
    found = [contest for contest in contests.contests() if contest.case.is_gemm]
    assert [contest.case.shape for contest in found[::2]] == contests.products()
    for own, library in zip(found[::2], found[1::2], strict=True):
        assert (own.case.flags.route, library.case.flags.route) == ("mma", "library")
        assert own.case.shape == library.case.shape and own.peers == library.peers == contests.W4A16


def test_every_peer_of_a_contest_takes_the_case():
    for contest in contests.contests(["1024x2048", LARGEST, *contests.products()]):
        for name in contest.peers:
            if name == "cuda_fp4":
                continue  # which also refuses for want of a header
            module = subjects.load("torchao" if name == COMPILED else name)
            refused = module.refuses(contest.case)
            assert refused in ("", "its kernels run on a GPU only"), contest.case.id


def test_contests_can_be_chosen():
    (found,) = contests.contests(["1024x2048"], ["torchao"])
    assert found.peers == ("torchao",) and found.case.rows == 1024


@pytest.mark.parametrize(
    "shapes, peers, sentence",
    [(["1024x2049"], [], "'1024x2049' is not among .*did you mean '1024x2048'"), ([], ["torchoa"], "mean 'torchao'")],
)
def test_an_unknown_shape_or_peer_names_the_nearest(shapes, peers, sentence):
    with pytest.raises(UsageError, match=sentence):
        contests.contests(shapes, peers)
