"""Mutated PTX: one trial in a hundred of the hunt, and the hunt finds what is planted."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from evidence.fuzz import driver, ptx, ptx_corpus
from ptx_emulator.errors import NotEmulated
from ptx_emulator.instructions import load_store, moves
from ptx_emulator.launches import Module
from ptx_emulator.ptx import kernel_body


@pytest.fixture(scope="module", autouse=True)
def prepared() -> None:
    ptx.prepare()


@pytest.mark.slow
def test_a_thousand_mutated_texts_are_refused_or_run_alike() -> None:
    found = driver.run("ptx", 1_000_000, 0, 1000, ptx.trial)
    assert found is None, f"{found.again}\n{found.text}"


def test_the_texts_run_to_their_end_before_they_are_mutated() -> None:
    for text in (*ptx_corpus.short(), *ptx_corpus.ours()):
        module = Module(text)
        for name in module.kernels:
            ended, written = ptx._launched(module, name, 1, 32, 5, compiled=True)
            assert not isinstance(ended, NotEmulated) and written, ended


def test_many_mutants_still_run() -> None:
    """A hunt in which the parser refuses nearly all would say nothing of the two paths."""
    ends: Counter[str] = Counter()
    for number in range(300):
        rng = random.Random(number)
        text = ptx.mutated(rng.choice(ptx_corpus.short()), rng, ptx_corpus.short())
        try:
            module = Module(text)
            ends["ran" if module.kernels and module.code(module.kernels[0]) else "no kernel"] += 1
        except NotEmulated:
            ends["refused"] += 1
    assert ends["ran"] > 150 and ends["refused"] > 30, ends


def planted(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    if what == "a traceback":
        monkeypatch.setattr(kernel_body.BodyParser, "_label", lambda self, name: {}[name])
        monkeypatch.setattr(kernel_body.limits, "UNREADABLE", (TypeError,))
    elif what == "an address of another register":
        fast = load_store._fast
        monkeypatch.setattr(
            load_store, "_fast", lambda emitter, codes, access, *rest: fast(emitter, codes, access, *rest)
            or load_store.Fast(codes[access.space], sources=(rest[0].slot,), data=tuple(rest[1]), access=access.number,
                               size=access.size, count=access.count)
            if access.space == "global" else fast(emitter, codes, access, *rest),
        )  # fmt: skip
    elif what == "a wrong result":
        monkeypatch.setattr(moves.np, "where", np.where)
        monkeypatch.setitem(moves.OPCODES, "selp.b32", moves.OPCODES["mov.b32"])


@pytest.mark.parametrize("what", ["a traceback", "an address of another register", "a wrong result"])
def test_a_planted_error_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, what)
    found = driver.run("ptx", 1_000_000, 0, 300, ptx.trial)
    assert found is not None
