"""A case: its id is its identity, its seed follows from what decides the bytes, and nothing about it can change."""

from __future__ import annotations

import dataclasses
import hashlib
import pickle

import pytest

from harness.contract.case import Case, Flags
from harness.contract.problem import Dense

DEFAULTS = Flags({"dtype": "bf16", "rht": False, "sign_mask": 0xD7E8})


def case(**changes) -> Case:
    fields = {"recipe": "toy", "flags": DEFAULTS, "problem": Dense(32, 64), "input": "normal", "mode": "eager"}
    return Case(**{**fields, "defaults": DEFAULTS, **changes})


def test_an_id_names_only_flags_that_differ_from_their_defaults_in_axis_order():
    flags = DEFAULTS.replace(sign_mask=1, rht=True)
    assert case(flags=flags, mode="graph").id == "toy/rht=true,sign_mask=1/32x64/normal/graph"
    assert case().id == "toy/default/32x64/normal/eager"


def test_eager_and_graph_share_a_seed_and_nothing_else_does():
    seeds = {
        case().seed,
        case(problem=Dense(48, 64)).seed,
        case(input="ties").seed,
        case(recipe="other").seed,
        case(flags=DEFAULTS.replace(rht=True)).seed,
    }
    assert len(seeds) == 5
    assert case(mode="graph").seed == case().seed


def test_a_seed_is_the_same_in_every_process():
    assert case().seed == 0x448D0306F9682EA0  # Python's own hash() would change with PYTHONHASHSEED
    assert 0 <= case().seed < 2**64
    assert case().offset == int.from_bytes(hashlib.sha256(b"toy/default/32x64/normal").digest()[8:12], "little")


def test_where_a_case_was_written_is_no_part_of_it():
    assert case(where="suites/toy.yaml:3") == case(where="suites/toy.yaml:9")
    assert hash(case(where="suites/toy.yaml:3")) == hash(case())


def test_a_case_survives_the_way_to_another_process():
    there = pickle.loads(pickle.dumps(case(flags=DEFAULTS.replace(rht=True))))
    assert there == case(flags=DEFAULTS.replace(rht=True))
    assert there.id == "toy/rht=true/32x64/normal/eager"


def test_nothing_about_a_case_can_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        case().input = "ties"
    with pytest.raises(AttributeError, match="flags are frozen"):
        case().flags.rht = True
    with pytest.raises(TypeError):
        case().flags["rht"] = True


def test_a_flag_that_does_not_exist_names_those_that_do():
    with pytest.raises(AttributeError, match="no flag 'rth'; the flags are dtype, rht, sign_mask"):
        _ = case().flags.rth
