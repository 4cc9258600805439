"""What a run writes is what its readers take, and times are those that a case can have.

`merge`, `gate` and `report` refuse no record of an honest run; of recipes and trees that are others' little is known.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from runs_on_disk import IDS, about, passed, sources, write_run
from suite_files import smallest
from timed_runs import of_case

from harness.contract.case import Case
from harness.device.capability import incapable
from harness.device.emulator import EmulatorDevice
from harness.errors import HarnessError, UsageError
from harness.files import RESULTS
from harness.jit.compile import instantiation
from harness.records.possible import (
    LARGEST_L2,
    evidence,
    impossible,
    moved,
    problems_of_times,
    require_possible_here,
    too_short,
)
from harness.records.run_folder import read_bench, read_run
from harness.suite.launch_plan import plan
from harness.suite.suite import find_case
from harness.verdict import Verdict
from harness.verify.verify import verify

# Several of these take as long as all other recipes together.
SLOW = ("backward", "backward_grouped", "forward_grouped")


@pytest.mark.sweep
@pytest.mark.parametrize("case", [
    pytest.param(case, marks=[pytest.mark.slow] if case.recipe in SLOW else [], id=case.id) for case in smallest()
])  # fmt: skip
def test_what_a_run_writes_is_possible(case: Case):
    case = replace(case, turn=0)  # on one target, because a record of both says the same of the case
    result = verify(case, EmulatorDevice())
    assert result.verdict is (Verdict.EXCLUDED if incapable(case, EmulatorDevice()) else Verdict.PASS), result.story
    assert impossible(result.to_record(), timed=False) == ""


FOREIGN = "mine/default/16x16/normal/eager"


@pytest.mark.slow
def test_no_committed_time_is_impossible():
    """With the header's machine, and without it."""
    for path in sorted(RESULTS.glob("baselines/*/bench.jsonl")):
        header, records = read_bench(path)
        for record in records:
            try:
                case = find_case(record["case_id"])
            except HarnessError:
                continue  # measured by another tree, as may be its bytes
            for machine in (header["machine"], {}):
                found = problems_of_times(case, record["targets"][0], record["times"], machine)
                assert not [problem for problem in found if "cannot be" in problem], case.id


def test_a_call_moves_what_any_choice_of_launches_moves():
    ((nbytes, read, written),) = moved(find_case("swizzle/default/1024x2048/normal/graph"))
    assert (nbytes, read, written) == (2 * 1024 * 128, 1024 * 128, 1024 * 128)


def test_both_choices_of_launches_are_known():
    """A device takes one launch or three for it; a file does not say which, and the bytes differ."""
    assert len({nbytes for nbytes, *_ in moved(find_case("per_token/default/1024x2048/normal/graph"))}) == 2


# On an H200, CTAs that wait for each other fit at once for the 1,024 rows, and not for the weight's 4,096.
TWO_STAGES = "forward/epilogue=per_token_fused,route=library,rht=false,weight_2d=false/1024x4096x4096/normal/eager"


@pytest.mark.parametrize(("fitting", "launches", "other"), [("", 7, 6), ("x", 6, 7), ("w", 6, 5), ("xw", 5, 6)])
def test_one_stage_may_fit_on_the_device_where_another_does_not(fitting: str, launches: int, other: int):
    case = find_case(TWO_STAGES)
    steps = plan(case, fits=lambda step: step.key("rowwise_amax")[0] in fitting)
    ran = [f"sm_90a {instantiation(step.signature, step.flags)}" for step in steps if not step.library]
    run = passed(case.id, [500.0]) | evidence(case, ["sm_90a"], timed=True) | {"instantiations": ran}
    times = of_case(run["times"], case.id)
    assert impossible(run | {"times": times | {"launches": launches}}, timed=True) == ""
    wrong = run | {"times": times | {"launches": other}}
    assert impossible(wrong, timed=True) == f"launches is {other}, and a call of it has {launches}"


def test_without_the_machine_bounds_are_wider():
    case = find_case("per_tensor/default/8192x8192/normal/graph")
    wide = [us for us in range(1, 200) if list(too_short(case, "sm_90a", us, 4200.0, {}))]
    tight = [us for us in range(1, 200) if list(too_short(case, "sm_90a", us, 4200.0, {"l2_bytes": "62914560"}))]
    assert 0 < len(wide) < len(tight) and LARGEST_L2 > 62914560


@pytest.mark.parametrize(
    "sealed",
    [{}, {"own/mine.py": "0" * 32}, {"own/mine.yaml": "0" * 32}],
    ids=["no folder", "a folder of recipes", "a pipeline"],
)
def test_a_recipe_of_the_users_is_not_known_here(tmp_path: Path, sealed: dict[str, str]):
    """`harness report` has no --recipe-dir, and shows such a run; without the folder, nobody has made the case."""
    record = passed(IDS[0]) | {"case_id": FOREIGN, "recipe": "mine"}
    run = read_run(write_run(tmp_path / "run", about([FOREIGN], [FOREIGN], sealed=sealed), record))
    if sealed:
        require_possible_here(run.path, run.header, run.records, run.about)
    else:
        with pytest.raises(UsageError, match="mine"):
            require_possible_here(run.path, run.header, run.records, run.about)


@pytest.mark.parametrize("option", ["--recipe-dir own", "--recipe-dir=own"])
def test_a_file_of_times_of_a_recipe_of_the_users_is_told_by_its_command(option: str):
    record = passed(IDS[0], [20.0 + i / 10 for i in range(12)]) | {"case_id": FOREIGN, "recipe": "mine"}
    header = {"sources": sources()[:16], "machine": {}, "command": f"python -m pytest own/mine.yaml --bench {option}"}
    require_possible_here("there", header, [record])


def test_a_part_of_this_tree_is_held_against_its_cases(tmp_path: Path):
    """A baseline is of several runs, each of which may be of another tree."""
    base = {"commit": "a", "date": "b", "sources": "feed", "machine": {}, "command": ""}
    part = {"commit": "c", "date": "d", "sources": sources()[:16]}
    wrong = passed(IDS[0], [20.0 + i / 10 for i in range(12)], bytes_compared=1)
    old, new = (
        wrong | {"times": wrong["times"] | {"commit": commit, "date": date}}
        for commit, date in (("a", "b"), ("c", "d"))
    )
    require_possible_here("there", base | {"parts": [part]}, [old])
    with pytest.raises(UsageError, match="bytes are compared in it, not 1"):
        require_possible_here("there", base | {"parts": [part]}, [old, new])
