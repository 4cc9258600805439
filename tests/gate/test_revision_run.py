"""A gate against a revision: what other processes prepare for it, in which order, and that none is left."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from harness.bench.baseline import baseline_first
from harness.errors import DeviceUnavailable
from harness.gate import revision_run
from harness.gate.revision_bench import Comparison
from harness.suite.suite import find_case
from harness.verdict import Judgement, Performance

CASE = find_case("swizzle/default/256x256/normal/graph")
SAME = find_case("per_token/default/48x80/normal/graph")
SMALLER = find_case("swizzle/default/128x64/normal/graph")


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """A record of the calls that a run makes to the preparing processes and to the bench.

    One case has the same machine code as the base.
    """
    found = SimpleNamespace(devices=0, sources=[], prepared=[], begun=[], compared=[], closed=0)

    class Ahead:
        def __init__(self, cases, processes, opponents):
            assert not found.devices and not opponents  # forked before a GPU is in use
            found.prepared += [case.id for case in cases]

        def begin(self, target, done):
            found.begun.append((target, list(done)))

        def close(self):
            found.closed += 1

    class Device:
        targets = ("sm_90a",)

        def __init__(self, **sources):
            found.devices += 1
            found.sources.append(sources)

        def identity(self):
            return {"gpu": "none"}

        def release(self):
            pass

    class Bench:
        def __init__(self, head, base, clock, effect, again):
            self.base, self.clock = base, clock
            found.asked, found.bench = (effect, again), self

        def same(self, case):
            return case.id == SAME.id

        def compare(self, case):
            found.compared.append(case.id)
            return Comparison(case, Judgement(case.id, Performance.SAME, "as before"), None)

    monkeypatch.setattr(revision_run, "Ahead", Ahead)
    monkeypatch.setattr(revision_run, "CudaDevice", Device)
    monkeypatch.setattr(revision_run, "RevisionBench", Bench)
    monkeypatch.setattr(revision_run, "clock_of", lambda device: SimpleNamespace(method="none"))
    monkeypatch.setattr(revision_run.roofline, "copy_gbps", lambda clock: 4000.0)
    monkeypatch.setattr(revision_run, "compile_changed", lambda *_: [])
    revision = SimpleNamespace(kernels=tmp_path / "kernels", suites=tmp_path / "suites", commit="0" * 40)
    monkeypatch.setattr(revision_run, "fetch", lambda *_: revision)
    return found


def test_cases_are_prepared_ahead_but_for_those_that_need_no_time(asked, tmp_path):
    path, done = revision_run.run("HEAD", [CASE, SAME, SMALLER], "gate", 0.01, folder=tmp_path / "new")
    assert asked.begun == [("sm_90a", [SAME.id])]
    assert set(asked.prepared) == {CASE.id, SAME.id, SMALLER.id}
    # In the order in which they are prepared, because what stands before a case is no longer expected to be asked for.
    assert asked.compared == [case.id for case in sorted([CASE, SAME, SMALLER], key=baseline_first)]
    assert [found.case.id for found in done] == asked.compared and asked.compared != [CASE.id, SAME.id, SMALLER.id]
    assert asked.closed == 1
    header, *lines = map(json.loads, path.read_text().splitlines())
    assert len(lines) == 4 and header["chosen"] == 3
    assert asked.bench.roofline_gbps == header["roofline"][0]["gbps"] == 4000.0


def test_the_base_is_the_revision_and_what_was_asked_for_counts(asked, tmp_path):
    revision_run.run("HEAD", [CASE], "gate", 0.07, True, folder=tmp_path / "new")
    assert asked.sources == [{}, {"kernels": tmp_path / "kernels", "suites": tmp_path / "suites"}]
    assert asked.asked == (0.07, True)


def test_without_a_gpu_nothing_is_left_running(asked, tmp_path, monkeypatch):
    def none(**_):
        raise DeviceUnavailable("there is no GPU")

    monkeypatch.setattr(revision_run, "CudaDevice", none)
    with pytest.raises(DeviceUnavailable):
        revision_run.run("HEAD", [CASE], "gate", 0.01, folder=tmp_path / "new")
    assert asked.closed == 1
