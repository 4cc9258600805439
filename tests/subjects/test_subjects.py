"""A subject from the command line to its records: loaded, excluded, judged, timed, and never mixed with another's."""

from __future__ import annotations

import json
import os
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import stand_in_gpu
from fake_clock import in_turns
from in_process import in_process
from processes import python_path
from timed_runs import HEADER, record

import harness.report
import harness.report.tables
from evidence.cheating.tools import work
from harness.bench.rounds import Baseline
from harness.device.emulator import EmulatorDevice
from harness.errors import Exit, UsageError
from harness.expected.expected import expect_on, fields_of, make_inputs, oracle_of
from harness.files import ROOT
from harness.gate import against_baseline, baseline
from harness.jit.compile import compile_kernel
from harness.jit.signature import read_signatures
from harness.records.run_folder import RunFiles
from harness.subjects import streams
from harness.subjects import subject as subjects
from harness.subjects.audit import verify as verifying
from harness.subjects.audit.bench import SubjectBench
from harness.subjects.audit.fresh_data import moved_along
from harness.subjects.audit.verify import audit
from harness.subjects.convention import Convention
from harness.subjects.device import with_subject
from harness.subjects.handover import tensor
from harness.subjects.subject import Subject, load
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict

CASE = "swizzle/default/256x256/normal/eager"
MINE = """
import numpy as np

def swizzle(case, inputs, outputs):
    source = inputs["scale_inv"]
    rows, cols = source.shape
    tiles = source.reshape(rows // 128, 4, 32, cols // 4, 4).transpose(0, 3, 2, 1, 4)
    outputs["swizzled_scale_inv"].reshape(tiles.shape)[...] = tiles

def lost(case, inputs, outputs):
    outputs["nosuch"][...] = 0

def nothing(case, inputs, outputs):
    pass
"""


def honest(case, inputs, outputs) -> None:
    work(inputs["scale_inv"], outputs["swizzled_scale_inv"])


def subject(quantize=honest, **changes) -> Subject:
    return in_process(Subject("mine:honest", "source 0", quantize, **changes))


def judged(quantize=honest, case: str = CASE, **changes) -> Result:
    return audit(find_case(case), with_subject(EmulatorDevice(), subject(quantize, **changes)))


# Loading


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.startswith("mine")]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "mine.py").write_text(MINE)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("mine")]:
        del sys.modules[name]


def test_a_function_of_the_working_directory(folder: Path):
    found = load("mine:swizzle")
    assert found.name == "mine:swizzle"
    assert found.version.startswith("source ") and len(found.version) == len("source ") + 12
    assert found.absent() == ""


@pytest.mark.parametrize("module", ["pkg.py", "a-b"])
def test_a_module_whose_name_looks_like_a_file_or_has_a_hyphen(folder: Path, module: str):
    (folder / "pkg").mkdir()
    (folder / "pkg/__init__.py").touch()
    for name in ("pkg/py.py", "a-b.py"):
        (folder / name).write_text(MINE)
    assert load(f"{module}:swizzle").name == f"{module}:swizzle"


def test_a_change_of_its_source_is_another_version(folder: Path, monkeypatch: pytest.MonkeyPatch):
    before = load("mine:swizzle").version
    (folder / "mine.py").write_text(MINE + "\n# edited\n")
    assert load("mine:swizzle").version != before


@pytest.mark.parametrize(
    "name, sentence",
    [
        ("nosuch", "there is no subject 'nosuch'"),
        ("mine:", "there is no subject 'mine:'"),
        ("mine.py:swizzle", "'mine.py' is spelled as a file; write mine:swizzle"),
        ("./mine.py:swizzle", "'./mine.py' is spelled as a file; write mine:swizzle"),
        ("pkg/sub.py:f", "'pkg/sub.py' is spelled as a file; write pkg.sub:f"),
        ("pkg/sub:f", "'pkg/sub' is spelled as a file; write pkg.sub:f"),
        ("mine.py", "'mine.py' is spelled as a file; write mine:function"),
        ("../mine.py:f", "'../mine.py' is no module that can be imported from here; in its folder, write module:func"),
        (
            ":swizzle",
            "':swizzle' names no module; a function of your own is spelled module:function, as in mine:swizzle",
        ),
        ("nosuch:quantize", "there is no module 'nosuch' to import from "),
        ("mine:swizle", "mine has no function 'swizle'; did you mean 'swizzle'?"),
        ("minebroken:quantize", "minebroken cannot be imported: ZeroDivisionError: division by zero"),
        ("mineneedy:quantize", "mineneedy cannot be imported: No module named 'nosuchpackage'"),
    ],
)
def test_a_subject_that_cannot_be_loaded(folder: Path, name: str, sentence: str):
    (folder / "minebroken.py").write_text("1 / 0\n")
    (folder / "mineneedy.py").write_text("import nosuchpackage\n")
    with pytest.raises(UsageError) as caught:
        load(name)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_not_installed_is_said_with_the_line_that_installs_it():
    needs = {"numpy": "pip install numpy", "nosuchpackage": "pip install nosuchpackage==1"}
    result = judged(needs=needs)
    assert (result.verdict, result.times) == (Verdict.EXCLUDED, {})
    assert result.reason == "subject mine:honest is not installed; `pip install nosuchpackage==1`"


def test_what_a_subject_refuses_is_excluded_with_its_reason():
    result = judged(refuses=lambda case: "it knows no swizzled scales")
    assert (result.verdict, result.reason) == (Verdict.EXCLUDED, "it knows no swizzled scales")


def test_every_module_that_is_a_subject_loads_and_knows_its_line():
    for name in subjects.names():
        found = load(name)
        for distribution, line in found.needs.items():
            assert "pip install" in line, f"{name}: NEEDS[{distribution!r}] is no line that installs it"


def test_versions_of_packages_are_part_of_the_version(folder: Path):
    (folder / "mine.py").write_text(MINE + "\nNEEDS = {'numpy': 'pip install numpy'}\n")
    assert load("mine:swizzle").version.startswith(f"numpy {metadata.version('numpy')}, source ")


# Judging


@pytest.mark.parametrize("direction", ["default", "direction=columnwise"])
def test_an_honest_subject_passes(direction: str):
    result = judged(case=f"swizzle/{direction}/256x256/normal/eager")
    assert (result.verdict, result.offence, result.device) == (Verdict.PASS, "", "host")
    assert result.subject == "mine:honest (source 0)"
    assert result.bytes_compared == 4 * 4096  # three runs, and one on other data


def test_wrong_bytes_are_a_mismatch_with_its_story():
    def wrong(case, inputs, outputs):
        honest(case, inputs, outputs)
        outputs["swizzled_scale_inv"].reshape(-1)[5] ^= 1

    result = judged(wrong)
    assert (result.verdict, result.offence) == (Verdict.MISMATCH, "")
    assert result.reason == "host: bytes differ in swizzled_scale_inv"
    assert "1 of 4096 entries differ" in result.story


def test_wrong_bytes_on_other_data_alone_are_a_mismatch():
    seen = []

    def wrong(case, inputs, outputs):
        honest(case, inputs, outputs)
        seen.append(inputs["scale_inv"].copy())
        if (seen[0] != seen[-1]).any():
            outputs["swizzled_scale_inv"].reshape(-1)[5] ^= 1

    result = judged(wrong)
    assert result.verdict is Verdict.MISMATCH
    assert result.reason.endswith("on a second input with a smaller amax at the same addresses")


def test_what_a_subject_raises_costs_its_case_alone():
    def broken(case, inputs, outputs):
        raise ValueError("of two\nlines")

    result = judged(broken)
    assert (result.verdict, result.offence) == (Verdict.LAUNCH_ERROR, "raises")
    assert result.reason.startswith("raises: mine:honest raised ValueError at test_subjects.py:")
    assert result.reason.endswith(": of two lines")


def test_it_may_exit_and_warn_as_it_likes():
    def leaves(case, inputs, outputs):
        raise SystemExit(3)

    def warns(case, inputs, outputs):
        import warnings

        warnings.warn("of its own", stacklevel=1)
        honest(case, inputs, outputs)

    assert judged(leaves).offence == "raises"
    assert judged(warns).verdict is Verdict.PASS


def test_arrays_have_the_dtype_and_shape_of_the_case():
    given = {}

    def looks(case, inputs, outputs):
        given.update({name: (array.dtype.name, array.shape) for name, array in (inputs | outputs).items()})

    judged(looks, "per_tensor/outputs=rowwise/16x32/normal/eager")
    assert given["input"] == ("bfloat16", (16, 32))
    assert given["rowwise_data"] == ("uint8", (16, 16))
    assert given["rowwise_amax"] == ("float32", (1,))


def test_a_tensor_shares_the_memory_of_an_array_and_knows_bf16():
    for dtype in ("uint16", "bfloat16"):
        array = np.array([0x3F80, 0xC000], np.uint16).view(dtype)
        shared = tensor(array)
        assert shared.tolist() == [1.0, -2.0]
        shared[0] = 3
        assert array.view(np.uint16)[0] == 0x4040
    assert tensor(np.zeros((2, 3), np.uint8)).shape == (2, 3)


# Conventions


def flipped(case, inputs, outputs) -> None:
    honest(case, inputs, outputs)
    outputs["swizzled_scale_inv"] ^= 1


@pytest.fixture
def conventions(monkeypatch: pytest.MonkeyPatch):
    """Explains bytes whose lowest bit is flipped, if that is declared."""

    def explain(case, inputs, demanded, written, declared):
        if any((demanded[name] ^ written[name] != 1).any() for name in demanded) or "odd" not in declared:
            return None
        return ("the lowest bit is the other one",)

    monkeypatch.setattr(verifying.conventions, "explain", explain)


def test_a_difference_that_is_declared_and_explained_is_a_convention(conventions):
    result = judged(flipped, conventions=frozenset({"odd"}))
    assert (result.verdict, result.reason) == (Verdict.CONVENTION, "the lowest bit is the other one")
    assert result.verdict.exit_code is Exit.CLEAN


@pytest.mark.parametrize("declared", [frozenset(), frozenset({"other"})])
def test_the_same_difference_undeclared_is_a_mismatch(conventions, declared):
    assert judged(flipped, conventions=declared).verdict is Verdict.MISMATCH


def test_nothing_written_is_no_convention(conventions):
    result = judged(lambda *_: None, conventions=frozenset({"odd"}))
    assert result.offence == "skips_work"
    assert " are never written, the first at [0, 0]" in result.reason


SPECIALS = "per_tensor/default/48x80/specials_nan/eager"
PADDED = "per_tensor/default/48x80/normal/eager"
ALL = frozenset(Convention)


def answering(case_id: str, change=lambda name, out: None):
    """A subject that writes what the oracle says, and then changes each field."""

    def quantize(case, inputs, outputs) -> None:
        for name, answer in oracle_of(case.recipe).numpy_oracle(case, dict(inputs)).items():
            outputs[name][...] = answer
            change(name, outputs[name])

    return quantize


def drawn(name: str, out) -> None:
    if name.endswith("_data"):
        out[...] = np.frombuffer(os.urandom(out.nbytes), np.uint8).reshape(out.shape)


def other_nan(name: str, out) -> None:
    if name.endswith("_amax"):
        out[...] = np.float32(np.nan)


def test_a_convention_allows_another_value_and_the_same_each_time():
    assert judged(answering(SPECIALS), SPECIALS, conventions=ALL).verdict is Verdict.PASS
    assert judged(answering(SPECIALS, other_nan), SPECIALS, conventions=ALL).verdict.right
    assert judged(answering(SPECIALS, drawn), SPECIALS, conventions=ALL).verdict is Verdict.NONDETERMINISTIC
    assert judged(lambda *_: None, SPECIALS, conventions=ALL).verdict is Verdict.UNWRITTEN


def test_padding_that_is_left_is_that_convention_alone():
    fields = fields_of(find_case(PADDED))

    def quantize(case, inputs, outputs) -> None:
        for name, answer in oracle_of(case.recipe).numpy_oracle(case, dict(inputs)).items():
            corner = tuple(map(slice, fields[name].valid or answer.shape))
            outputs[name][corner] = answer[corner]

    assert fields["rowwise_scale_inv"].valid != fields["rowwise_scale_inv"].shape
    left = judged(quantize, PADDED, conventions=frozenset({"padding"}))
    assert (left.verdict, left.reason.startswith("padding: ")) == (Verdict.CONVENTION, True)
    assert judged(quantize, PADDED, conventions=ALL - {"padding"}).verdict is Verdict.UNWRITTEN


# Timing


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> stand_in_gpu.StandInGpu:
    monkeypatch.setattr(SubjectBench, "_baseline", lambda *_: Baseline(why_not="no kernels here"))
    return stand_in_gpu.install(monkeypatch)


def timed(gpu, quantize=honest, **changes) -> Result:
    device = with_subject(gpu, subject(quantize, **changes))
    case = find_case(CASE)
    result = audit(case, device)
    assert result.verdict.right, result.story
    return SubjectBench(device, gpu.clock, 1.0).time(case, result, in_turns(gpu.clock))


def test_a_convention_is_timed(gpu, conventions):
    def flips(case, inputs, outputs):
        work(inputs["scale_inv"], outputs["swizzled_scale_inv"])
        outputs["swizzled_scale_inv"] ^= 1

    result = timed(gpu, flips, conventions=frozenset({"odd"}))
    assert result.verdict is Verdict.CONVENTION
    assert result.times["median_us"] > 0


def test_a_time_that_its_bytes_do_not_allow_is_refused(gpu):
    device, case = with_subject(gpu, subject(honest)), find_case(CASE)
    verified = audit(case, device)
    result = SubjectBench(device, gpu.clock, 1e-3).time(case, verified, in_turns(gpu.clock))
    assert (result.verdict, result.times) == (Verdict.IMPOSSIBLE, {})
    assert " us cannot be: " in result.reason


def test_a_subject_has_one_opponent(gpu):
    product = find_case("gemm/epilogue=per_token/128x128x128/normal/eager")
    assert SubjectBench(with_subject(gpu, subject(honest)), gpu.clock, 1.0)._second(product) is None


@pytest.mark.parametrize("right_calls", [5, 20])
def test_what_only_timing_shows_has_no_time(gpu, right_calls: int):
    """Wrong from some round on, or in all that is timed, where only the oracle can tell."""
    calls = []

    def late(case, inputs, outputs):
        calls.append(1)
        work(inputs["scale_inv"], outputs["swizzled_scale_inv"])
        outputs["swizzled_scale_inv"] ^= len(calls) > right_calls

    result = timed(gpu, late)
    assert (result.verdict, result.offence, result.times) == (Verdict.NONDETERMINISTIC, "not_in_timing", {})


@pytest.mark.parametrize("stops, verdict", [(0, "CONVENTION"), (20, "NONDETERMINISTIC")])
def test_random_bits_of_its_own_are_timed_if_they_are_declared(gpu, conventions, monkeypatch, stops: int, verdict: str):
    monkeypatch.setattr(verifying.conventions, "explain", lambda *_: ("random bits: 7 codes",))
    calls = []

    def random_bits(case, inputs, outputs):
        calls.append(1)
        if not stops or len(calls) < stops:
            work(inputs["scale_inv"], outputs["swizzled_scale_inv"])
            outputs["swizzled_scale_inv"] ^= len(calls) % 7

    result = timed(gpu, random_bits, conventions=frozenset({"random bits"}))
    assert result.verdict == verdict
    if stops:
        assert result.offence == "not_in_timing"
    else:
        assert "no two are alike" in result.times["measured"]
        assert result.conventions == "random bits"


def test_data_that_are_timed_are_not_those_that_were_verified(gpu):
    seen = []

    def keeps(case, inputs, outputs):
        seen.append(inputs["scale_inv"].tobytes())
        honest(case, inputs, outputs)

    device, case = with_subject(gpu, subject(keeps)), find_case("swizzle/default/1024x64/normal/eager")
    result = audit(case, device)
    verified = set(seen)
    seen.clear()
    result = SubjectBench(device, gpu.clock, 1.0).time(case, result, in_turns(gpu.clock))
    assert len(verified) == 2
    assert not verified & set(seen)
    assert len(set(seen)) >= result.times["rounds"]


def test_answers_kept_by_content_earn_nothing(gpu):
    """From its hundredth call on, the subject answers only inputs that it has been given before."""
    kept, calls = {}, []

    def keeps(case, inputs, outputs):
        calls.append(1)
        content = inputs["scale_inv"].tobytes()
        if len(calls) < 100 or content in kept:
            honest(case, inputs, outputs)
        kept[content] = True

    device, case = with_subject(gpu, subject(keeps)), find_case("swizzle/default/1024x64/normal/eager")
    result = SubjectBench(device, gpu.clock, 1.0).time(case, audit(case, device), in_turns(gpu.clock))
    assert (result.offence, result.times) == ("not_in_timing", {})


@pytest.mark.parametrize(
    "case_id",
    [
        "per_tensor/rht=true,rounding=sr/48x80/ties/eager",
        "grouped/dtype=fp32,outputs=rowwise/0+128+0+128x80/normal/eager",
        "gemm/default/16x144x48/exact_sum/eager",
        "gemm_ordered/layout=nt,beta=1/16x16x16/exact_sum/eager",
        "forward/route=library/16x16x16/normal/eager",
    ],
)
def test_other_data_are_of_the_kind_of_the_case_s_own(case_id: str):
    case = find_case(case_id)
    own, other = make_inputs(case), moved_along(case)
    assert {name: (x.shape, x.dtype) for name, x in own.items()} == {
        name: (x.shape, x.dtype) for name, x in other.items()
    }
    assert any(own[name].tobytes() != x.tobytes() for name, x in other.items())
    assert expect_on(case, other).disagreement == ""


def test_the_kernel_that_keeps_a_stream_busy_compiles():
    signature = read_signatures("hold", Path(streams.__file__).parent)["hold"]
    assert compile_kernel(signature, {}, "sm_90a").cubin_path


# A run


@pytest.fixture(autouse=True)
def this_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one that is installed."""
    monkeypatch.setenv("PYTHONPATH", python_path(ROOT))


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    suite = str(ROOT / "suites" / "swizzle.yaml")
    return pytester.runpytest_subprocess(
        "-p", "harness.plugin", suite, "--case", CASE, "--device", "emulator", "--run-dir", "out", *arguments
    )


def test_a_run_says_whose_it_is(pytester: pytest.Pytester):
    (pytester.path / "mine.py").write_text(MINE)
    result = run(pytester, "--subject", "mine:swizzle")
    assert result.ret == 0, result.stderr.str()
    header, entry = map(json.loads, (pytester.path / "out" / "journal.jsonl").read_text().splitlines())
    assert header["device"]["subject"].startswith("mine:swizzle (source ")
    assert entry["subject"] == header["device"]["subject"]
    assert entry["verdict"] == "PASS"
    assert (
        "| subject, in place of our kernels | mine:swizzle (source "
        in (pytester.path / "out" / "verify.md").read_text()
    )
    assert "<dd>mine:swizzle (source " in (pytester.path / "out" / "verify.html").read_text()
    other = run(pytester, "--subject", "mine:nothing", "--resume")
    assert other.ret == Exit.USAGE
    assert "--subject was 'mine:swizzle', and on the command line it is 'mine:nothing'" in other.stderr.str()


def test_a_run_goes_on_after_a_subject_that_left_and_the_story_of_one_that_writes_nothing_runs_it_again(
    pytester: pytest.Pytester,
):
    (pytester.path / "mine.py").write_text(f"import os{MINE}\n    if case.rows == 256:\n        os._exit(0)\n")
    small = CASE.replace("256x256", "16x16")
    result = run(pytester, "--subject", "mine:nothing", "--case", small)
    result.stdout.fnmatch_lines(["UNWRITTEN*", f"*harness verify --subject mine:nothing --case '{small}'*"])
    assert result.ret == Exit.BYTES_DIFFER
    _, *entries = map(json.loads, (pytester.path / "out" / "journal.jsonl").read_text().splitlines())
    assert {entry["case_id"]: entry["offence"] for entry in entries} == {
        CASE: "leaves",
        small: "skips_work",
    }


@pytest.mark.slow
def test_a_run_of_what_is_not_installed_compares_nothing(pytester: pytest.Pytester):
    (pytester.path / "mine.py").write_text(MINE + "NEEDS = {'nosuchpackage': 'pip install nosuchpackage'}\n")
    result = run(pytester, "--subject", "mine:swizzle")
    assert result.ret == Exit.NO_DEVICE
    assert "nosuchpackage" in result.stdout.str()  # a narrow terminal breaks the line that installs it


@pytest.mark.slow
def test_a_subject_that_does_not_exist_is_one_sentence(pytester: pytest.Pytester):
    result = run(pytester, "--subject", "nosuch")
    assert result.ret == Exit.USAGE
    assert "error: there is no subject 'nosuch'" in result.stderr.str()


# Two runs


def of_subject(name: str) -> dict:
    return {**HEADER, "machine": {**HEADER["machine"], "subject": name}}


CASES = "per_tensor/default/1024x2048/normal/eager"


@pytest.mark.parametrize("ours, theirs", [("mine (1)", "mine (2)"), ("mine (1)", ""), ("", "mine (1)")])
def test_times_of_different_subjects_are_not_compared(ours: str, theirs: str):
    headers = [of_subject(name) if name else HEADER for name in (ours, theirs)]
    assert "subject" in against_baseline.incomparable(*headers)
    assert against_baseline.incomparable(headers[0], headers[0]) == ""


def test_no_subject_becomes_the_baseline_of_our_kernels(tmp_path: Path):
    with pytest.raises(UsageError, match=r"this run is of the subject mine \(1\)"):
        baseline.save(RunFiles(tmp_path, [record(CASES)], of_subject("mine (1)")), tmp_path / "bench.jsonl", {}, [])


def test_the_page_of_times_says_whose_they_are():
    facts = harness.report.tables.facts_of(of_subject("mine (1)"))
    assert facts["subject, in place of our kernels"] == "mine (1)"
    assert "our kernel on the same case" in facts["columns"]
    assert not any("subject" in name for name in harness.report.tables.facts_of(HEADER))
