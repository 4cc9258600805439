"""Ways to green by a journal that no run could have written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs_on_disk import GPU, IDS, about, excluded, mismatch, passed, sources, write_run
from timed_runs import HEADER, of_case, times_of
from ways import Command, must_be_red, must_be_refused

from harness.records.run_folder import commit, read_run

CASE = IDS[0]
SAMPLES = [20.0 + i / 10 for i in range(12)]

FORGED = {
    "no byte was compared": {"bytes_compared": 0},
    "no oracle was asked": {"oracles": []},
    "an oracle that nobody knows was asked": {"oracles": ["mine"]},
    "one oracle was asked twice": {"oracles": ["numpy", "numpy"]},
    "no target was run": {"targets": [], "instantiations": [], "digests": {}},
    "no device ran": {"device": ""},
    "a device that nobody knows ran": {"device": "abacus"},
    "the device has no such target": {"device": "host"},
    "a GPU ran two targets": {"device": "cuda"},
    "no kernel ran": {"instantiations": []},
    "a target was claimed on which no kernel ran": {"instantiations": ["sm_90a swizzle<Outputs::rowwise>"]},
    "a kernel ran on a target that was not asked for": {"targets": ["sm_90a"], "digests": {}},
    "the bytes of a target that was not run have a digest": {"digests": {"sm_120a": {"exact": "0" * 32}}},
    "the input is another one": {"input": "zeros"},
    "our bytes differ by a convention": {"verdict": "CONVENTION", "reason": "scale order"},
    "the process died": {"died": True},
    "a rule was broken": {"subject": "mine (1)", "offence": "copied", "instantiations": [], "digests": {}},
    "it took less than no time": {"seconds": -1.0},
    "it took ten thousand years": {"seconds": 3e11},
}


def journal(folder: Path, record: dict[str, Any], **changes: Any) -> Path:
    return write_run(folder / "run", about([record["case_id"]], [record["case_id"]], **changes), record)


def test_the_record_that_is_forged_here_is_read_as_it_is(tmp_path: Path):
    """No way to green: without a change, the record is right."""
    assert read_run(journal(tmp_path, passed(CASE))).records == [passed(CASE)]


@pytest.mark.parametrize("changes", FORGED.values(), ids=FORGED)
def test_a_pass_without_evidence(tmp_path: Path, changes: dict[str, Any]):
    """Write a PASS into the journal that lacks what a comparison leaves, and have it reported."""
    run = journal(tmp_path, passed(CASE) | changes, device={})
    must_be_refused(lambda: read_run(run).records, "journal.jsonl is not what a run writes: line 2")


@pytest.mark.parametrize(
    "changes",
    [{"bytes_compared": 96}, {"oracles": ["torch"]}, {"digests": {"sm_90a": {"exact": "0" * 32}}}, {"reason": ""}],
    ids=lambda changes: next(iter(changes)),
)
def test_an_exclusion_that_ran(tmp_path: Path, changes: dict[str, Any]):
    """Call a case EXCLUDED after it ran, or without a reason, so that its bytes never count."""
    run = journal(tmp_path, {**excluded(CASE), "targets": ["sm_90a"]} | changes)
    must_be_refused(lambda: read_run(run).records, "EXCLUDED")


@pytest.mark.parametrize(
    "device",
    [{"device": "cuda", "gpu": "NVIDIA H200"}, {"device": "emulator", "subject": "mine (source 1)"}],
    ids=["a GPU", "a subject"],
)
def test_records_under_the_header_of_something_else(tmp_path: Path, device: dict[str, str]):
    """Put a header of a GPU, or of a subject, before records of our kernels on the emulator."""
    run = journal(tmp_path, passed(CASE), device=device)
    must_be_refused(lambda: read_run(run).records, "not what a run writes")


def test_a_mismatch_is_called_excluded(tmp_path: Path, command: Command):
    """Call a MISMATCH an EXCLUDED, which is one word of the journal: then nothing is wrong, and the rest is green."""
    for number, changes in enumerate(({}, {"story": ""}, {"story": "", "reason": excluded(IDS[1])["reason"]})):
        record = mismatch(IDS[1]) | {"verdict": "EXCLUDED"} | changes
        run = write_run(tmp_path / str(number), about(IDS[:2], IDS[:2]), passed(IDS[0]), record)
        must_be_red(command("merge", run, "--into", tmp_path / f"all{number}"), "EXCLUDED")


def test_other_cases_than_were_selected(tmp_path: Path):
    """Replace a failing case in the journal by one that passes and was never selected."""
    run = write_run(tmp_path / "run", about(IDS[:2], IDS[:2]), passed(IDS[0]), passed(IDS[2]))
    must_be_refused(lambda: read_run(run).records, "the cases are not those that were selected")


def test_more_cases_than_were_selected(tmp_path: Path):
    """Add a passing case to a run in which all that was selected is excluded."""
    run = write_run(tmp_path / "run", about(IDS[:1], IDS[:1]), excluded(IDS[0]), passed(IDS[1]))
    must_be_refused(lambda: read_run(run).records, "1 cases were selected, and there are 2")


FALSE_TIMES = {
    "the median is lower": {"median_us": 10.0},
    "the quartiles are closer": {"q1_us": 20.5, "q3_us": 20.6},
    "the minimum is lower": {"min_us": 1.0},
    "there are more rounds": {"rounds": 100},
    "more rounds than there are waited": {"exposed": 13},
    "more bytes a second": {"gbps": 4000.0},
    "more of the roofline": {"roofline_percent": 99.9},
    "another roofline": {"roofline_gbps": 2100.0, "roofline_percent": 100.0},
    "a better ratio to the baseline": {"baseline_ratio": 100.0},
    "a ratio to no baseline": {"baseline_us": None},
    "less noise": {"relative_error": 1e-6},
    "a lower clock": {"samples_mhz": [1980.0] * len(SAMPLES), "mhz": 9.0},
    "a thousand million rounds were dropped": {"dropped": 10**9},
    "TFLOP/s of no product": {"tflops": 0.0},
    "no launch": {"launches": 0},
    "more launches": {"launches": 2},
}


@pytest.mark.parametrize("changes", FALSE_TIMES.values(), ids=FALSE_TIMES)
def test_times_that_are_not_their_samples(tmp_path: Path, command: Command, changes: dict[str, Any]):
    """Write a faster median, or a better share of the roofline, beside samples that say otherwise, and save it."""
    record = passed(CASE, SAMPLES) | {"times": of_case(times_of(SAMPLES), CASE) | changes}
    header = HEADER | {"sources": sources()[:16], "commit": commit(), "machine": GPU}
    run = write_run(tmp_path / "run", about([CASE], [CASE], timed=True, device=GPU), record, header=header)
    made = command("gate", run, "--baseline", tmp_path / "bench.jsonl", "--save")
    if made.returncode == 0:
        # Saved times are believed where they are read again.
        made = command("report", tmp_path / "bench.jsonl")
    must_be_red(made, "is not what a run writes")


def _reported(tmp_path: Path, command: Command, record: dict[str, Any], /, **header: Any):
    """What `harness report` makes of a table with this record."""
    file = tmp_path / "table.jsonl"
    lines = (HEADER | {"machine": GPU, "sources": sources()[:16]} | header, record)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return command("report", file)


ELSEWHERE = {key: HEADER[key] for key in ("machine", "sources")}  # of another tree, on another machine


NO_GPU = {
    "a clock of 1e9 MHz": ({"samples_mhz": [1e9] * len(SAMPLES), "mhz": 1e9}, "1e+09 MHz is no clock of a GPU"),
    "half a MHz": ({"mhz": 0.5}, "times.mhz: 0.5 MHz is no clock of a GPU; one has 1 to 10,000 MHz"),
    "5000 degrees": ({"celsius": 5000.0}, "times.celsius: Input should be less than or equal to 150"),
    "a megawatt": ({"power_w": 1e6}, "times.power_w: Input should be less than or equal to 10000"),
    "a part that the header has not": (
        {"commit": "f" * 40, "date": "2026-01-01T00:00:00Z"},
        f"its times are of commit {'f' * 40}, 2026-01-01T00:00:00Z, and no run in its header is",
    ),
}


@pytest.mark.parametrize(("changes", "sentence"), NO_GPU.values(), ids=NO_GPU)
def test_times_of_no_gpu_and_of_no_run(tmp_path: Path, command: Command, changes: dict[str, Any], sentence: str):
    """Write clocks, degrees and watts that no GPU has, or times of a run that no header names."""
    times = of_case(times_of(SAMPLES), CASE)
    assert _reported(tmp_path, command, passed(CASE, SAMPLES)).returncode == 0
    done = _reported(tmp_path, command, passed(CASE, SAMPLES) | {"times": times | changes}, sources="feed")
    must_be_red(done, sentence)
    assert "Value error" not in done.stderr and "function-after" not in done.stderr


LARGE = "swizzle/default/32768x8192/normal/graph"


def _scaled(us: float, nbytes: int | None = None) -> dict[str, Any]:
    """The record of a large case that takes so long and moves so many bytes, with all that follows from these."""
    samples = [us + i / 1000 for i in range(12)]
    times = of_case(times_of(samples), LARGE)
    gbps = (nbytes or times["bytes"]) / times["median_us"] / 1e3
    times |= {"bytes": nbytes or times["bytes"], "gbps": round(gbps, 1), "roofline_percent": round(gbps / 42, 2)}
    times["measured"] = "graph; graphs of 8 calls, cold: 6 copies fill 3.2x L2"
    return passed(LARGE, samples, oracles=["torch"]) | {"times": times}


def test_fewer_bytes_in_less_time(tmp_path: Path, command: Command):
    """Write a tenth of a case's bytes beside times so short that its own bytes would betray them."""
    assert _reported(tmp_path, command, _scaled(12.0)).returncode == 0
    must_be_red(
        _reported(tmp_path, command, _scaled(1.0, 3355443)), "bytes is 3355443, and a call of it moves 33554432"
    )
    machine = GPU | {"l2_bytes": "62914560"}
    short = _scaled(2.5)
    must_be_red(_reported(tmp_path, command, short, machine=machine), "us cannot be: 33,554,432 bytes take 3.8")
    # Nobody knows here what the cases of another tree moved.
    assert _reported(tmp_path, command, short, machine=machine, sources="feed").returncode == 0


@pytest.mark.parametrize("changes", [{"bytes_compared": 1}, {"oracles": ["numpy"]}], ids=["bytes", "oracles"])
def test_a_table_of_this_tree_with_less_than_its_cases_ask_for(
    tmp_path: Path, command: Command, changes: dict[str, Any]
):
    """Write fewer compared bytes or other oracles into a table, and publish its page."""
    must_be_red(_reported(tmp_path, command, passed(CASE, SAMPLES) | changes), "is not what a run writes")


def test_times_that_no_gpu_takes(tmp_path: Path, command: Command):
    """Write samples of 10 ns, and all that follows from them; then of a hundred, so that the bytes are too many."""
    for us, sentence in ((0.01, "min_us is 0.01"), (0.2, "roofline_percent is 5")):
        samples = [us + i / 1000 for i in range(12)]
        slower, times = times_of(SAMPLES), times_of(samples)
        gbps = slower["bytes"] / times["median_us"] / 1e3
        times |= {"bytes": slower["bytes"], "gbps": round(gbps, 1), "roofline_percent": round(gbps / 42, 2)}
        record = passed(CASE, SAMPLES) | {"times": times}
        must_be_red(_reported(tmp_path, command, record, **ELSEWHERE), sentence)


def test_times_of_a_device_without_a_clock(tmp_path: Path, command: Command):
    """Claim that the emulator took the times of a GPU."""
    record = passed(CASE, SAMPLES, device="emulator")
    must_be_red(_reported(tmp_path, command, record, **ELSEWHERE), "device is 'emulator', which has no clock")


def test_more_operations_than_the_products_have(tmp_path: Path, command: Command):
    """Write more TFLOP/s beside the time of a product."""

    def reported(tflops: float):
        record = passed("gemm/default/128x128x128/normal/eager", SAMPLES)
        return _reported(tmp_path, command, record | {"times": times_of(SAMPLES) | {"tflops": tflops}}, **ELSEWHERE)

    assert reported(0.2).returncode == 0
    must_be_red(reported(99999.0), "tflops is 99999.0, and that of the case's products in 20.55 us is 0.2")


@pytest.mark.parametrize("changes", [{"case_id": f"swizzle/default/{shape}/normal/eager"} for shape in ("0x16", "x")])
def test_a_case_that_no_suite_has(tmp_path: Path, command: Command, changes: dict[str, str]):
    """Claim a PASS of a case that does not exist, with all the evidence of one that does."""
    run = journal(tmp_path, passed(CASE) | changes)
    must_be_red(command("merge", run, "--into", tmp_path / "all"), changes["case_id"])
    must_be_red(command("report", run), changes["case_id"])
    must_be_red(_reported(tmp_path, command, passed(CASE, SAMPLES) | changes), changes["case_id"])


@pytest.mark.parametrize(
    "changes",
    [{"bytes_compared": 6}, {"oracles": ["torch"]}, {"instantiations": ["sm_90a other", "sm_100a other"]}],
    ids=["bytes", "oracles", "kernels"],
)  # fmt: skip
def test_less_than_the_case_asks_for(tmp_path: Path, command: Command, changes: dict[str, Any]):
    """Claim a PASS of fewer bytes, one oracle or another kernel than the case has."""
    run = journal(tmp_path, passed(CASE) | changes)
    must_be_red(command("merge", run, "--into", tmp_path / "all"), "is not what a run writes")


def test_a_negative_amax_that_both_oracles_take():
    """Give stage=encode a negative amax: both oracles agree on what it gives, and the kernel with them."""
    from harness.expected.expected import make_inputs, oracle_of
    from harness.suite.suite import find_case

    for recipe in ("per_tensor", "per_token", "four_over_six"):
        case = find_case(f"{recipe}/stage=encode/128x128/normal/eager")
        for value in (-1.0, np.nan):
            inputs = {
                name: np.full_like(array, value) if name.endswith("_amax") else array
                for name, array in make_inputs(case).items()
            }
            must_be_refused(lambda inputs=inputs, case=case: oracle_of(case.recipe).numpy_oracle(case, inputs), "amax")


def test_a_mismatch_under_another_name(tmp_path: Path, command: Command):
    """Write the MISMATCH of a case a second time, as a PASS: the later line must not win."""
    lines = [about([CASE], [CASE]), mismatch(CASE), passed(CASE)]
    run = write_run(tmp_path / "run", *lines)
    must_be_red(command("merge", run, "--into", tmp_path / "all"), "stands there a second time")
