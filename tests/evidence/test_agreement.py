"""Digests of what cases wrote, and two runs compared by them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from evidence.__main__ import main
from harness.device.device import Outcome
from harness.device.emulator import EmulatorDevice
from harness.errors import Exit
from harness.expected.expected import expect
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict
from harness.verify import digest as digests_of
from harness.verify.digest import digest
from harness.verify.verify import verify

CASE = find_case("per_tensor/outputs=rowwise/48x80/ties/eager")
ONE, OTHER = "0a" * 16, "0b" * 16
DEVICES = {
    "emulator": {"device": "emulator", "processor": "x86_64", "nvrtc": "13.5"},
    "cuda": {"device": "cuda", "gpu": "NVIDIA H200", "nvrtc": "13.0", "driver": "13000"},
}


def test_a_digest_tells_every_byte_name_and_length() -> None:
    codes = np.arange(6, dtype=np.uint8)
    fields = {"a": codes, "b": codes.view(np.uint16)}
    other = codes.copy()
    other[5] ^= 1
    assert digest(fields) == digest({"b": codes, "a": codes})
    different = [{"a": codes}, {"a": other, "b": codes}, {"a": codes, "c": codes}, {"a": codes[:5], "b": codes}]
    assert len({digest(fields), *map(digest, different)}) == 5


def test_a_pass_carries_the_digest_of_the_demanded_bytes_for_each_target() -> None:
    result = verify(CASE, EmulatorDevice())
    demanded = {"exact": digest(expect(CASE).values)}
    assert result.digests == {"sm_90a": demanded, "sm_100a": demanded}
    assert Result.from_record(json.loads(json.dumps(result.to_record()))) == result


def test_bounded_fields_have_a_digest_of_their_own_and_on_hopper_there_are_bytes() -> None:
    result = verify(find_case("gemm/default/16x2688x64/wide_sum/eager"), EmulatorDevice())
    assert {target: set(found) for target, found in result.digests.items()} == {
        "sm_90a": {"ordered"}, "sm_100a": {"bounded"},
    }  # fmt: skip


def test_outputs_too_large_for_the_emulator_are_not_fetched(monkeypatch) -> None:
    expected = expect(CASE)
    monkeypatch.setattr(digests_of, "LARGEST", sum(field.nbytes for field in expected.fields.values()) - 1)
    assert digests_of.digests(EmulatorDevice(), Outcome({}, ""), expected, expected) == {}


def record(case_id: str, verdict: Verdict = Verdict.PASS, **digests: dict[str, str]) -> dict:
    if verdict is not Verdict.PASS:
        return Result(case_id, "toy", verdict, "so").to_record()
    targets = tuple(digests) or ("sm_90a",)
    ran = tuple(f"{target} toy" for target in targets)
    given = case_id.split("/")[3]
    result = Result(case_id, "toy", verdict, "", "", given, "", targets, ran, ("torch",), 12, digests=digests)
    return result.to_record()


def both_targets(case_id: str, **digests: str) -> dict:
    return record(case_id, sm_90a=digests, sm_100a=digests)


@pytest.fixture
def agree(tmp_path):
    """Runs the command on the records of two runs; its exit code and the page."""

    def run(emulated: list[dict], on_gpu: list[dict]) -> tuple[Exit, str]:
        for device, records in (("emulator", emulated), ("cuda", on_gpu)):
            header = {"sources": "feed" * 16, "device": DEVICES[device]}
            of_device = [record | {"device": device} for record in records]
            lines = "".join(json.dumps(line) + "\n" for line in (header, *of_device))
            (tmp_path / device).mkdir()
            (tmp_path / device / "journal.jsonl").write_text(lines)
        with pytest.raises(SystemExit) as done:
            main(["agree", str(tmp_path / "emulator"), str(tmp_path / "cuda"), "--out", str(tmp_path)])
        return Exit(done.value.code), (tmp_path / "emulator.md").read_text()

    return run


def test_equal_digests_agree_a_graph_with_the_eager_launches(agree) -> None:
    eager, graph = "toy/default/16x16/ties/eager", "toy/default/16x16/ties/graph"
    code, page = agree(
        [both_targets(eager, exact=ONE), record(graph, Verdict.EXCLUDED)],
        [record(eager, sm_90a={"exact": ONE}), record(graph, sm_90a={"exact": ONE})],
    )
    assert code is Exit.CLEAN
    assert "| toy | 2 | 4/4 | - | 0 | 0 |" in page


def test_a_demanded_byte_that_differs_is_named_and_red(agree) -> None:
    case_id = "toy/default/16x16/ties/eager"
    code, page = agree(
        [record(case_id, sm_90a={"exact": ONE}, sm_100a={"exact": OTHER})], [record(case_id, sm_90a={"exact": ONE})]
    )
    assert code is Exit.BYTES_DIFFER
    assert "| toy | 1 | 1/2 | - | 0 | 0 |" in page
    assert f"`{case_id} on sm_100a`" in page


def test_bounded_fields_may_differ_and_are_listed(agree) -> None:
    case_id = "toy/default/16x16/ties/eager"
    code, page = agree(
        [both_targets(case_id, exact=ONE, bounded=ONE)], [record(case_id, sm_90a={"exact": ONE, "bounded": OTHER})]
    )
    assert code is Exit.CLEAN
    assert "| toy | 1 | 2/2 | 0/2 | 0 | 0 |" in page
    assert f"`{case_id} on sm_90a`" in page.partition("Bounded, and not the same")[2]


def test_a_sum_is_demanded_where_the_order_of_both_targets_is_known(agree) -> None:
    case_id = "toy/default/16x16/ties/eager"
    on_gpu = [record(case_id, sm_90a={"exact": ONE, "ordered": ONE})]
    emulated = record(case_id, sm_90a={"exact": ONE, "ordered": ONE}, sm_100a={"exact": ONE, "bounded": OTHER})
    code, page = agree([emulated], on_gpu)
    assert code is Exit.CLEAN
    assert "| toy | 1 | 3/3 | 0/1 | 0 | 0 |" in page


def test_a_sum_that_differs_from_that_of_a_known_order_is_red(agree) -> None:
    case_id = "toy/default/16x16/ties/eager"
    code, page = agree([record(case_id, sm_90a={"ordered": OTHER})], [record(case_id, sm_90a={"ordered": ONE})])
    assert code is Exit.BYTES_DIFFER
    assert "| toy | 1 | 0/1 | - | 0 | 0 |" in page


@pytest.mark.parametrize("theirs", [{"bounded": ONE}, {"exact": ONE, "bounded": ONE}, {"exact": ONE, "ordered": ONE}])
def test_a_field_that_only_one_of_the_two_wrote_differs(agree, theirs: dict[str, str]) -> None:
    case_id = "toy/default/16x16/ties/eager"
    code, _ = agree([both_targets(case_id, exact=ONE)], [record(case_id, sm_90a=theirs)])
    assert code is Exit.BYTES_DIFFER


def test_cases_of_one_run_are_counted_and_too_large_ones_are_the_gpus(agree) -> None:
    small, large, other = (f"toy/default/{shape}/ties/eager" for shape in ("16x16", "4096x4096", "32x32"))
    code, page = agree([both_targets(small, exact=ONE), both_targets(other, exact=ONE)], [record(large)])
    assert code is Exit.NO_DEVICE
    assert "| toy | 0 | - | - | 2 | 1 |" in page


def test_a_case_that_failed_is_red(agree) -> None:
    case_id = "toy/default/16x16/ties/eager"
    code, page = agree([both_targets(case_id, exact=ONE)], [record(case_id, Verdict.MISMATCH)])
    assert code is Exit.BYTES_DIFFER
    assert f"MISMATCH on cuda: {case_id}" in page


def test_runs_in_the_wrong_order_are_told(agree, tmp_path, capsys) -> None:
    agree([], [])
    with pytest.raises(SystemExit) as done:
        main(["agree", str(tmp_path / "cuda"), str(tmp_path / "emulator")])
    assert done.value.code == Exit.USAGE
    assert "emulator first, then cuda" in capsys.readouterr().err
