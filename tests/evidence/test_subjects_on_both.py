"""What subjects wrote on two machines, side by side: equal, or which field differs and what the oracles said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from in_process import in_process
from pydantic import ValidationError

from evidence import subjects_on_both
from evidence.__main__ import main
from harness.device.emulator import EmulatorDevice
from harness.expected.expected import expect_on
from harness.records.records import Finished
from harness.records.run_folder import RunFiles
from harness.records.seal import selection_digest
from harness.subjects.audit.verify import audit
from harness.subjects.device import with_subject
from harness.subjects.subject import Subject
from harness.suite.suite import find_case

CASE = "swizzle/default/48x80/normal/eager"


def right(case, inputs, outputs):
    for name, value in expect_on(case, dict(inputs)).values.items():
        outputs[name][...] = value


def wrong(case, inputs, outputs):
    right(case, inputs, outputs)
    outputs["swizzled_scale_inv"].reshape(-1)[0] ^= 1


def record(quantize) -> dict:
    subject = in_process(Subject("mine:theirs", "source 0", quantize))
    return audit(find_case(CASE), with_subject(EmulatorDevice(), subject)).to_record()


def on_gpu(record: dict) -> dict:
    return record | {"device": "cuda", "targets": ["sm_90"]}


def run(*records: dict, subject: str = "mine:theirs (source 0)") -> RunFiles:
    device = records[0]["device"] if records else "host"
    about = {"device": device, "subject": subject} | ({"gpu": "NVIDIA Fake"} if device == "cuda" else {})
    return RunFiles(Path("run"), list(records), {}, {"sources": "0" * 64, "device": about})


def test_what_a_subject_wrote_is_in_its_record_right_or_wrong():
    one, other = record(right), record(wrong)
    assert list(one["written"]) == ["swizzled_scale_inv"] == list(other["written"])
    assert one["written"] != other["written"]
    assert (one["verdict"], other["verdict"]) == ("PASS", "MISMATCH")


def test_a_field_that_differs_is_named_with_what_the_oracles_found():
    same = subjects_on_both.pairs([run(record(right))], [run(on_gpu(record(right)))])
    assert [each.differing for each in same] == [[]]
    (row,) = subjects_on_both.table(same).to_dict("records")
    assert (row["equal"], row["where and why"]) == ("equal", "")
    assert row["bytes on the laptop"] == row["bytes on the GPU"] != ""
    (row,) = subjects_on_both.table(subjects_on_both.pairs([run(record(right))], [run(on_gpu(record(wrong)))])).to_dict(
        "records"
    )
    assert row["equal"] == "differ" and row["bytes on the laptop"] != row["bytes on the GPU"]
    assert row["where and why"].startswith("swizzled_scale_inv: laptop as the oracles; GPU MISMATCH: ")


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (("PASS", ""), ("PASS", ""), "both as the oracles"),
        (
            ("CONVENTION", "sign of zero: 8 codes"), ("CONVENTION", "sign of zero: 9 codes"),
            "laptop sign of zero: 8 codes; GPU sign of zero: 9 codes",
        ),
        (
            ("CONVENTION", "random bits: 8 codes"), ("CONVENTION", "random bits: 8 codes"),
            "each machine draws random bits of its own; both random bits: 8 codes",
        ),
    ],
)  # fmt: skip
def test_why_is_what_was_said_of_both(one, other, said):
    records = [{"case_id": CASE, "verdict": verdict, "reason": reason} for verdict, reason in (one, other)]
    assert subjects_on_both.Both("theirs", *records).why == said


def test_a_case_of_one_machine_has_the_reason_of_the_other():
    excluded = on_gpu(record(right)) | {"verdict": "EXCLUDED", "reason": "not me", "written": {}}
    (found,) = subjects_on_both.alone([run(record(right))], [run(excluded)])
    assert (found.where, found.elsewhere) == ("laptop", "EXCLUDED: not me")
    (found,) = subjects_on_both.alone([run()], [run(on_gpu(record(right)))])
    assert (found.where, found.elsewhere) == ("GPU", "not run")


def _on_disk(folder: Path, record: dict, subject: str = "mine:theirs (source 0)") -> None:
    header = {
        "sources": "0" * 64, "sealed": {}, "device": run(record, subject=subject).about["device"],
        "cases": selection_digest([CASE]), "selected": 1, "selection": selection_digest([CASE]), "set": "",
        "shard": "1/1", "timed": False,
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (header, record)))


def agree(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["agree", *map(str, words)])
    return ended.value.code


def test_one_command_makes_the_page_from_folders_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    one = record(right)
    laptop, gpu = tmp_path / "laptop", tmp_path / "gpu"
    _on_disk(laptop / "theirs", one)
    _on_disk(gpu / "theirs", on_gpu(one))
    assert agree(laptop, gpu, "--out", tmp_path / "out") == 0
    page = (tmp_path / "out" / "laptop_and_gpu.md").read_text()
    assert f"| mine:theirs | {CASE} | " in page and "NVIDIA Fake" in page and "| differ |" not in page
    _on_disk(gpu / "ours", on_gpu(one) | {"subject": "", "verdict": "MISMATCH", "written": {}}, "")
    assert agree(laptop, gpu) == 64
    assert "not compared with those of our kernels" in capsys.readouterr().err


def test_a_digest_of_what_our_own_kernel_wrote_is_refused():
    with pytest.raises(ValidationError, match="only of a subject is it said what it wrote"):
        Finished.model_validate(record(wrong) | {"subject": ""})
