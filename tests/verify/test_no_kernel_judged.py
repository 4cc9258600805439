"""Whose fault it is that no kernel was judged: each pair is a mistake outside of the kernel, and one within it."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_recipe import NAME, change, in_use, written

import harness
from harness.errors import SEVERITY, Exit
from harness.verdict import Result, Verdict, exit_words

CASE = f"{NAME}/default/48x80/normal/eager"
RAISES = "raise ValueError('nobody meant this')\n    "
# name: file, before, after, verdict, and what its reason says
FAULTS = {
    "an oracle that raises": (
        ".py", "    return {\n", f"    {RAISES}return {{\n", Verdict.SETUP_ERROR, "the oracle raised ValueError"
    ),
    "oracles that disagree": (
        ".py", "np.float32(1 / 6)", "np.float32(1 / 5)", Verdict.SETUP_ERROR, "the oracles disagree on "
    ),
    "a parameter that nothing binds to": (
        ".cu", "int rows, int cols) {\n  __shared__",
        "int rows, int columns) {\n  const int cols = columns;\n  __shared__",
        Verdict.SETUP_ERROR, "nothing binds to parameter 'columns'",
    ),
    "a kernel that the suite misspells": (
        ".yaml", "kernel: toy_encode", "kernel: toy_encod", Verdict.SETUP_ERROR, "has no kernel 'toy_encod'"
    ),
    "an instruction that the emulator lacks": (
        ".cu", "  __syncthreads();\n", '  __syncthreads();\n  asm volatile("pmevent 1;");\n',
        Verdict.NOT_EMULATED, "not emulated: pmevent",
    ),
    "a header of CUDA that no toolkit here has": (
        ".cu", "#include", "#include <cuda/nosuch>\n#include", Verdict.NO_DEVICE, "no <cuda/nosuch>"
    ),
    "a header that nobody has": (
        ".cu", "#include", "#include <nosuch_header.h>\n#include", Verdict.COMPILE_ERROR, "no <nosuch_header.h>"
    ),
    "a kernel that traps": (
        ".cu", "  __syncthreads();\n", "  __syncthreads();\n  __trap();\n", Verdict.LAUNCH_ERROR, "the kernel trapped"
    ),
    "a kernel that does not compile": (
        ".cu", "const float* x =", "const flaot* x =", Verdict.COMPILE_ERROR, "NVRTC refused"
    ),
}  # fmt: skip
EXITS = {Verdict.SETUP_ERROR: Exit.USAGE, Verdict.NOT_EMULATED: Exit.NO_DEVICE, Verdict.NO_DEVICE: Exit.NO_DEVICE}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_verdict_says_whose_fault_it_is(tmp_path: Path, fault: str):
    suffix, before, after, verdict, says = FAULTS[fault]
    folder = written(tmp_path / NAME)
    change(folder, suffix, before, after, first=True)
    with in_use(folder):
        result = harness.verify_case(CASE, "emulator")
    assert (result.verdict, says in result.reason) == (verdict, True), result.story
    assert result.verdict.exit_code is EXITS.get(verdict, Exit.BYTES_DIFFER)
    assert ("no kernel was judged" in result.story) is (not verdict.judges)
    assert result.bytes_compared == 0


def test_want_of_memory_is_the_machine_s(tmp_path: Path):
    folder = written(tmp_path / NAME)
    change(
        folder,
        ".py",
        "    return {\n",
        "    raise MemoryError('Unable to allocate 12 TiB')\n    return {\n",
        first=True,
    )
    with in_use(folder):
        result = harness.verify_case(CASE, "emulator")
    assert result.verdict in (Verdict.NO_DEVICE, Verdict.SETUP_ERROR), result.story
    assert "Unable to allocate 12 TiB" in result.reason


@pytest.mark.parametrize("verdict", Verdict)
def test_no_verdict_that_compared_nothing_is_clean_but_what_was_excluded(verdict: Verdict):
    clean = (Verdict.PASS, Verdict.CONVENTION, Verdict.EXCLUDED)
    assert (verdict.exit_code is Exit.CLEAN) == (verdict in clean)
    assert verdict.judges is (verdict is not Verdict.EXCLUDED and verdict not in EXITS)


def test_a_wrong_kernel_comes_before_what_was_not_judged():
    assert SEVERITY.index(Exit.BYTES_DIFFER) < SEVERITY.index(Exit.USAGE) < SEVERITY.index(Exit.NO_DEVICE)


@pytest.mark.parametrize(
    ("code", "verdicts", "words"),
    [
        (1, ["MISMATCH", "PASS"], "bytes differ"),
        (1, ["COMPILE_ERROR", "PASS"], "a kernel does not compile"),
        (1, ["LAUNCH_ERROR", "LAUNCH_ERROR"], "a kernel does not run to its end"),
        (1, ["LAUNCH_ERROR", "COMPILE_ERROR"], "a kernel does not compile, and a kernel does not run to its end"),
        (1, ["LAUNCH_ERROR", "MISMATCH"], "bytes differ"),
        (64, ["SETUP_ERROR"], "no kernel was judged: the suite, recipe, oracle or card is at fault"),
        (64, ["SETUP_ERROR"] * 2 + ["PASS"], "in 2 cases no kernel was judged: the suite, recipe, oracle or card is "
                                             "at fault"),
        (4, ["NOT_EMULATED", "EXCLUDED"], "no kernel was judged: the emulator lacks what it uses"),
        (1, ["MISMATCH", "SETUP_ERROR"], "bytes differ; in 1 case no kernel was judged: the suite, recipe, oracle or "
                                         "card is at fault"),
        (64, [], "usage"),
        (0, ["PASS"], ""),
    ],
)  # fmt: skip
def test_an_exit_code_is_explained_by_its_verdicts(code: int, verdicts: list[str], words: str):
    assert exit_words(Exit(code), map(Verdict, verdicts)) == words


def test_an_old_journal_s_words_are_read():
    record = Result("toy/default/48x80/normal/eager", "toy", Verdict.MISMATCH, "the oracles disagree on x").to_record()
    assert Result.from_record(record).verdict is Verdict.MISMATCH
