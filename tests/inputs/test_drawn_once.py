"""Tensors that processes share: drawn once, dropped when no case needs them, and never waited for in vain."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest
from processes import LONGEST

from harness.inputs import drawn_once
from harness.inputs.drawn_once import DrawnOnce

SHAPE = (3, 5)


def draw(value: float = 1.0) -> np.ndarray:
    return np.full(SHAPE, value, np.float32)


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DrawnOnce:
    monkeypatch.setattr(drawn_once, "LARGEST_OWN", 1)
    made = DrawnOnce()
    made.share(tmp_path)
    return made


def test_nothing_is_kept_until_a_folder_is_shared():
    alone = DrawnOnce()
    first, second = (alone.of("key", "fp32", SHAPE, draw) for _ in range(2))
    assert first is not second and alone.reference(first) is None


def test_a_small_tensor_is_not_worth_a_file(shared, tmp_path, monkeypatch):
    monkeypatch.setattr(drawn_once, "LARGEST_OWN", 15)
    assert shared.reference(shared.of("key", "fp32", SHAPE, draw)) is None and not list(tmp_path.iterdir())


def test_a_key_is_drawn_once_and_gives_the_same_array(shared):
    first = shared.of("key", "fp32", SHAPE, draw)
    assert shared.of("key", "fp32", SHAPE, lambda: 1 / 0) is first
    assert first.dtype == np.float32 and first.shape == SHAPE and first.flags.writeable and (first == 1).all()
    assert shared.reference(first)[1:] == ("fp32", SHAPE) and shared.load(shared.reference(first)) is first


@pytest.mark.parametrize(("key", "dtype", "shape"), [("other", "fp32", SHAPE), ("key", "fp32", (5, 3))])
def test_another_key_or_shape_is_another_tensor(shared, key, dtype, shape):
    shared.of("key", "fp32", SHAPE, draw)
    found = shared.of(key, dtype, shape, lambda: np.full(shape, 2, np.float32))
    assert found.shape == shape and (found == 2).all()


def test_an_array_that_was_not_drawn_here_has_no_reference(shared):
    found = shared.of("key", "fp32", SHAPE, draw)
    assert shared.reference(found.copy()) is None and shared.reference("text") is None


def test_another_process_maps_what_was_drawn(shared):
    def elsewhere(answers) -> None:
        found = shared.of("key", "fp32", SHAPE, lambda: 1 / 0)
        answers.put((float(found.sum()), shared.reference(found)))

    drawn = shared.of("key", "fp32", SHAPE, draw)
    shared._mapped.clear()
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    process = context.Process(target=elsewhere, args=(answers,))
    process.start()
    assert answers.get(timeout=LONGEST) == (15.0, shared.reference(drawn))
    process.join()


def test_who_was_killed_while_drawing_is_not_waited_for(shared, tmp_path):
    shared.of("key", "fp32", SHAPE, draw)
    (path,) = [each for each in tmp_path.iterdir() if not each.suffix]
    path.unlink()
    shared._mapped.clear()
    context = multiprocessing.get_context("fork")
    gone = context.Process(target=os._exit, args=(0,))
    gone.start()
    gone.join()
    path.with_suffix(".claim").write_text(str(gone.pid))
    assert (shared.of("key", "fp32", SHAPE, lambda: draw(3)) == 3).all()


def test_a_file_is_dropped_once_the_last_case_that_asked_is_passed(shared, tmp_path):
    shared.asker = 7
    shared.of("key", "fp32", SHAPE, draw)
    shared.asker = 5
    shared.of("key", "fp32", SHAPE, draw)
    shared.drop(6)
    assert len(list(tmp_path.iterdir())) == 2
    shared.drop(7)
    assert not list(tmp_path.iterdir())
    shared._mapped.clear()
    assert (shared.of("key", "fp32", SHAPE, lambda: draw(2)) == 2).all()
