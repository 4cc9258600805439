"""Contests between our kernels and peers, judged, timed and told; the sides are made up."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace

import click.testing
import numpy as np
import pytest
import torch

from evidence.commands import peers as command
from evidence.peers import contests, peer_bench, prepared, tables
from evidence.peers.contests import COMPILED, QUANTIZERS, Contest
from evidence.peers.implementations import Peer
from evidence.peers.peer_bench import OURS, PeerBench
from harness.bench.statistics import Samples
from harness.errors import DeviceUnavailable, Exit, LaunchError, UsageError
from harness.expected.expected import expect, high_precision
from harness.subjects.audit import conventions
from harness.suite.suite import find_case
from harness.verdict import Verdict
from tests.fake_clock import FakeClock
from tests.timed_runs import HEADER

CASE = find_case("per_tensor/outputs=rowwise,stage=encode/48x80/normal/graph")


@pytest.mark.parametrize(
    "case_id", ["per_tensor/stage=encode/48x80/normal/graph", "four_over_six/outputs=rowwise/48x80/normal/graph"]
)
def test_a_case_is_given_on_the_gpu_what_its_oracle_gives_on_the_host(case_id):
    expected = expect(find_case(case_id))
    found = prepared.given(find_case(case_id), prepared.to_torch(expected.inputs["input"]))
    assert found.keys() == expected.inputs.keys()
    for name, value in expected.inputs.items():
        np.testing.assert_array_equal(prepared.from_torch(found[name]).view(np.uint8), value.view(np.uint8))


@pytest.mark.parametrize("shape", ["1x64x48", "16x128x32", "80x144x64"])
def test_a_product_is_given_on_the_gpu_what_its_oracle_gives_on_the_host(shape):
    case = find_case(f"gemm/default/{shape}/normal/graph")
    operands = high_precision(case)
    found = prepared.given(case, prepared.to_torch(np.concatenate([operands["a"], operands["b"]])))
    expected = expect(case).inputs
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(prepared.from_torch(found[name]), value, err_msg=name)


# Products, of which values are expected to lie within bounds

PRODUCT = find_case("gemm/default/16x64x32/normal/graph")


@pytest.fixture
def product(monkeypatch):
    """PRODUCT prepared in host memory, and its output, in bf16, as the oracle's lowest values."""
    monkeypatch.setattr(prepared, "_bytes_of_cupy", lambda value: prepared.from_torch(value).reshape(-1).view(np.uint8))
    expected = expect(PRODUCT)
    output = expected.values["output"].low.copy()
    guarded = SimpleNamespace(payload=output.reshape(-1).view(np.uint8))
    memory = SimpleNamespace(outputs={"output": guarded}, trespass=lambda poison: "")
    wanted = {"output": expected.values["output"].map(prepared.to_torch)}
    setup = SimpleNamespace(case=PRODUCT, memories=[memory])
    return prepared.PreparedCase(setup, expected.fields, expected.inputs, wanted), output


def test_a_product_passes_within_its_bounds_and_is_told_how_far_it_is_beyond(product):
    prepared_case, output = product
    assert prepared_case.bounded
    assert peer_bench.check_outputs(prepared_case, frozenset()).verdict == Verdict.PASS
    low, high = prepared_case.expected["output"].low, prepared_case.expected["output"].high
    output[...] = prepared.from_torch(high)
    assert peer_bench.check_outputs(prepared_case, frozenset()).verdict == Verdict.PASS
    output[3, 5] = output[3, 5] * 4 + 1
    found = peer_bench.check_outputs(prepared_case, frozenset())
    assert (found.verdict, found.wrong) == (Verdict.MISMATCH, {"output": 1})
    error = abs(float(output[3, 5]) - float((low[3, 5] + high[3, 5]) / 2))
    relative = error / float(((low.double() + high.double()) / 2).norm())
    (told,) = found.reasons
    assert told.startswith("output: 1 of 512 entries beyond the bound of fp32 sums, L2 error ")
    assert float(told.rpartition(" ")[2]) == pytest.approx(relative, rel=0.05)


def test_a_graph_may_add_in_another_order_within_the_bounds_but_not_beyond(product):
    prepared_case, output = product
    prepared_case.setup.stream = lambda: nullcontext(None)
    before = peer_bench.Check(Verdict.MISMATCH, ("as before",), {"output": 7})
    side = SimpleNamespace(poison=lambda byte: output.view(np.uint8).fill(byte), deliver=lambda: None)

    def again(launch):
        graph = SimpleNamespace(graph=SimpleNamespace(launch=launch))
        return PeerBench(None, None)._check_graph(prepared_case, side, graph, before).verdict

    low = prepared.from_torch(prepared_case.expected["output"].low)
    assert again(lambda stream: np.copyto(output, low)) == Verdict.PASS
    assert again(lambda stream: output.fill(1)) == Verdict.MISMATCH
    assert again(lambda stream: None) == Verdict.UNWRITTEN


# A peer's calls


def test_what_a_peer_prepares_is_made_once_for_every_copy_and_outside_of_what_is_timed(monkeypatch):
    made, queued = [], []

    @contextmanager
    def stream():
        queued.append("begun")
        yield
        queued.append("waited for")

    def prepare(case, given):
        assert queued[-1] == "begun", "on the clock's stream, which is waited for before anything is timed"
        made.append(given)
        return {"twice": 2 * given["a_amax"]}

    def call(case, given):
        return {"output": given["twice"] * torch.ones(case.rows, case.problem.n)}

    module = SimpleNamespace(call=call, prepare=prepare)
    monkeypatch.setitem(sys.modules, "mine", module)
    subject = SimpleNamespace(quantize=SimpleNamespace(__module__="mine"))
    expected = expect(PRODUCT)
    outputs = {"output": SimpleNamespace(payload=np.zeros(16 * 32 * 2, np.uint8), field=expected.fields["output"])}
    inputs = {name: value.reshape(-1).view(np.uint8) for name, value in expected.inputs.items()}
    memories = [SimpleNamespace(inputs=inputs, outputs=outputs) for _ in range(3)]
    setup = SimpleNamespace(clock=None, case=PRODUCT, memories=memories, stream=stream)
    layouts = {name: (value.dtype.name, value.shape) for name, value in expected.inputs.items()}
    side = Peer(setup, subject, layouts)
    assert len(made) == 3 and queued == ["begun", "waited for"]
    side.launch()
    side.launch()
    side.deliver()
    assert len(made) == 3
    written = outputs["output"].payload.view(np.uint16)
    assert (written == prepared.to_torch(2 * expected.inputs["a_amax"]).bfloat16().view(torch.int16).numpy()).all()


# Judged and timed


class Ground:
    """A stand-in for the arrays that a peer is run on: CASE, in host memory."""

    def __init__(self):
        expected = expect(CASE)
        self.fields, self.inputs, self.expected = expected.fields, expected.inputs, expected.values
        self.outputs = {name: np.zeros(value.shape, value.dtype) for name, value in self.expected.items()}
        stream = SimpleNamespace()
        self.setup = SimpleNamespace(
            case=CASE, stream=lambda: nullcontext(stream), memories=[SimpleNamespace(inputs=self.inputs)]
        )
        self.layouts, self.strayed, self.bounded = {}, "", False

    def wrong(self, name):
        return int((self.outputs[name] != self.expected[name]).sum())

    def unwritten(self, name, poison):
        return bool((self.outputs[name] == poison).all())

    def describe(self, name, wrong):
        return f"{name}: {wrong} bytes"

    def trespass(self, poison):
        return self.strayed

    def on_host(self):
        return self.inputs, self.expected, self.outputs


@dataclass
class Side:
    """Takes `us` and writes the expected bytes, changed by `change`; in a graph by `later`."""

    ground: Ground
    clock: FakeClock
    us: float = 100.0
    change: dict = field(default_factory=dict)
    later: dict | None = None
    capturable: bool = True
    program = SimpleNamespace(steps=())

    def launch(self, stream=None, change=None):
        self.clock.now += self.us * 1e-6
        for name, value in self.ground.expected.items():
            made = (self.change if change is None else change).get(name, lambda value: value)(value.copy())
            if made is not None:
                self.ground.outputs[name][...] = made

    def graph(self):
        if not self.capturable:
            raise RuntimeError("operation not permitted\nwhen stream is capturing")
        replay = SimpleNamespace(launch=lambda stream: self.launch(change=self.later))
        return SimpleNamespace(graph=replay, calls=2, us=self.us)

    def deliver(self):
        pass

    def poison(self, byte):
        for output in self.ground.outputs.values():
            output[...] = byte


@pytest.fixture
def meet(monkeypatch):
    """Hold a contest of ours against one peer; what either does is given."""

    def held(ours=None, theirs=None, declared=(), absent="", raises=None, strayed=""):
        clock, prepared_case = FakeClock(), Ground()
        prepared_case.strayed = strayed
        subject = SimpleNamespace(
            label="peer (1.0)", absent=lambda: absent, refuses=lambda case: "", conventions=frozenset(declared)
        )

        def their_side(*given):
            if raises:
                raise raises
            return Side(prepared_case, clock, **{"us": 400.0, **(theirs or {})})

        monkeypatch.setattr(peer_bench, "OurKernels", lambda setup: Side(prepared_case, clock, **(ours or {})))
        monkeypatch.setattr(peer_bench, "Peer", their_side)
        monkeypatch.setattr(peer_bench, "load", lambda name: subject)
        monkeypatch.setattr(peer_bench, "bytes_moved", lambda *given: 42_000_000)
        monkeypatch.setattr(
            peer_bench, "take",
            lambda clock, sides, rounds, order: {n: Samples([s.us / 2] * rounds, [1980.0]) for n, s in sides.items()},
        )  # fmt: skip
        preparer = SimpleNamespace(prepare=lambda case: prepared_case)
        met = PeerBench(preparer, clock).run(Contest(CASE, ("peer",)))
        return {outcome.side: outcome for outcome in met.results}, met

    return held


def test_both_sides_are_judged_and_timed_eagerly_and_as_graphs(meet):
    found, _ = meet()
    assert [outcome.verdict for outcome in found.values()] == [Verdict.PASS, Verdict.PASS]
    assert found[OURS].us == {"eager": pytest.approx(100), "graph": 50}
    assert found["peer"].us == {"eager": pytest.approx(400), "graph": 200}
    assert len(found["peer"].samples["eager"]) == peer_bench.ROUNDS


def flipped(value):
    value[0, 0] ^= 0x88
    return value


def one_more(value):
    value[0, 0] ^= 1
    return value


def test_a_declared_convention_is_told_and_an_undeclared_one_is_a_mismatch(meet):
    def negative_zero(value):
        codes = conventions.nvfp4.unpack(value)
        codes[(codes & 7) == 0] ^= 8
        return conventions.nvfp4.pack(codes)

    found, _ = meet(theirs={"change": {"rowwise_data": negative_zero}}, declared=conventions.Convention)
    assert found["peer"].verdict == Verdict.CONVENTION
    assert found["peer"].reasons[0].startswith("sign of zero: ")
    found, _ = meet(theirs={"change": {"rowwise_data": negative_zero}})
    assert found["peer"].verdict == Verdict.MISMATCH and found["peer"].reasons[0].startswith("rowwise_data: ")


def test_wrong_bytes_are_timed_and_named(meet):
    found, _ = meet(theirs={"change": {"rowwise_data": one_more}}, declared=conventions.Convention)
    assert (found["peer"].verdict, found["peer"].reasons) == (Verdict.MISMATCH, ("rowwise_data: 1 bytes",))
    assert found["peer"].us


def test_who_writes_nothing_is_not_fast(meet):
    found, _ = meet(theirs={"change": {"rowwise_data": lambda value: None}})
    assert (found["peer"].verdict, found["peer"].us) == (Verdict.UNWRITTEN, {})


def test_who_writes_nothing_in_a_graph_is_found_after_it_was_timed(meet):
    found, _ = meet(theirs={"later": {"rowwise_data": lambda value: None}})
    assert found["peer"].verdict == Verdict.UNWRITTEN
    found, _ = meet(theirs={"later": {"rowwise_data": flipped}})
    assert found["peer"].verdict == Verdict.NONDETERMINISTIC


def test_what_is_beside_the_outputs_is_nobody_s(meet):
    found, _ = meet(strayed="output 'rowwise_data': 4 bytes after it were written")
    assert found["peer"].verdict == Verdict.OUT_OF_BOUNDS and not found["peer"].us


def test_who_is_not_installed_is_excluded_with_the_line(meet):
    found, _ = meet(absent="subject peer is not installed; `pip install peer`")
    assert found["peer"].verdict == Verdict.EXCLUDED and "pip install peer" in found["peer"].reasons[0]
    assert found[OURS].us


def test_an_error_of_theirs_costs_them_the_contest_alone(meet):
    found, _ = meet(raises=ValueError("no\nkernel image"))
    assert (found["peer"].verdict, found["peer"].reasons) == (Verdict.LAUNCH_ERROR, ("ValueError: no kernel image",))
    assert found[OURS].verdict == Verdict.PASS


def test_who_cannot_be_captured_has_an_eager_time(meet):
    found, _ = meet(theirs={"capturable": False})
    assert found["peer"].us.keys() == {"eager"}
    assert found["peer"].no_graph == "RuntimeError: operation not permitted when stream is capturing"


# Told


def test_a_record_and_the_table_have_both_sides_and_their_ratio(meet):
    _, met = meet(theirs={"change": {"rowwise_data": one_more}})
    mine, theirs = found = tables.records(met, 4200.0)
    assert mine["side"] == OURS and mine["times_as_long"] == {"eager": 1.0, "graph": 1.0}
    assert theirs["times_as_long"] == {"eager": pytest.approx(4), "graph": 4.0}
    assert theirs["percent"]["graph"] == pytest.approx(5.0)
    (row,) = tables.frame(found).to_dict("records")
    assert row["graph us"] == "50.00" and row["graph peer us"] == "200.0" and row["graph x"] == "4.00"
    assert row["theirs"] == "MISMATCH; rowwise_data: 1 bytes"
    text = tables.page(HEADER | {"peers": ["peer (1.0)"]}, found)
    assert "| per_tensor outputs=rowwise,stage=encode | 48x80 | peer |" in text
    assert "FlashInfer" in text and "4,200 GB/s at the end" in text


def test_a_contest_that_was_not_begun_stands_in_the_table():
    found = tables.failed(CASE.id, ["torchao"], "not begun within 5 s")
    (row,) = tables.frame(found).to_dict("records")
    assert row["theirs"] == "NOT_MEASURED; not begun within 5 s" and row["graph us"] == "-"


# The command


def run(*words):
    return click.testing.CliRunner().invoke(command.command, list(words), standalone_mode=False)


def test_the_list_needs_no_gpu():
    found = run("--list", "--shape", "1024x2048")
    assert found.output.splitlines()[0].endswith(", ".join(name for name in QUANTIZERS if name != COMPILED))


def test_without_a_gpu_nothing_is_written(tmp_path, monkeypatch):
    def absent():
        raise DeviceUnavailable("no GPU")

    monkeypatch.setattr(command, "CudaDevice", absent)
    found = run("--out", str(tmp_path / "new"))
    assert isinstance(found.exception, DeviceUnavailable) and not (tmp_path / "new").exists()


@pytest.fixture
def gpu(meet, monkeypatch):
    """A command that finds a GPU on which every contest ends as `outcome` says."""
    device = SimpleNamespace(identity=lambda: HEADER["machine"], release=lambda: None)
    monkeypatch.setattr(command, "CudaDevice", lambda: device)
    monkeypatch.setattr(command, "clock_of", lambda device: FakeClock())
    monkeypatch.setattr("harness.bench.roofline.copy_gbps", lambda clock: 4200.0)
    monkeypatch.setattr(command, "CasePreparer", lambda *given: None)

    def ends(outcome):
        monkeypatch.setattr(peer_bench.PeerBench, "run", lambda self, contest: outcome(contest))

    return ends


@pytest.mark.slow
def test_records_are_on_disk_with_header_and_closing_roofline(gpu, meet, tmp_path):
    _, met = meet()
    gpu(lambda contest: met)
    found = run("--shape", "1024x2048", "--out", str(tmp_path))
    assert found.return_value == Exit.CLEAN, found.output
    header, *records, end = map(json.loads, (tmp_path / "peers.jsonl").read_text().splitlines())
    assert header["roofline"][0]["point"] == "start" and end["end"]["point"] == "end"
    assert len(records) == 2 * len(contests.SWEPT)
    assert "4.00x ours" in found.output
    assert (tmp_path / "peers.md").read_text().startswith("# Our kernels beside public ones")
    assert isinstance(run("--out", str(tmp_path)).exception, UsageError)


@pytest.mark.slow
def test_a_wrong_byte_of_ours_is_the_only_thing_that_is_red(gpu, meet, tmp_path):
    _, right = meet(theirs={"change": {"rowwise_data": one_more}})
    _, wrong = meet(ours={"change": {"rowwise_data": one_more}})
    gpu(lambda contest: right)
    assert run("--shape", "1024x2048", "--out", str(tmp_path / "theirs")).return_value == Exit.CLEAN
    gpu(lambda contest: wrong)
    assert run("--shape", "1024x2048", "--out", str(tmp_path / "ours")).return_value == Exit.BYTES_DIFFER


@pytest.mark.slow
def test_an_error_of_ours_costs_one_contest_and_time_that_is_up_the_rest(gpu, meet, tmp_path):
    def refuse(contest):
        raise LaunchError("no memory")

    gpu(refuse)
    found = run("--shape", "1024x2048", "--out", str(tmp_path / "error"))
    assert found.return_value == Exit.NO_DEVICE and "no memory" in found.output
    found = run("--seconds", "0", "--out", str(tmp_path / "late"))
    assert "not begun within 0 s" in (tmp_path / "late" / "peers.md").read_text()
