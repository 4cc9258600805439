"""Subjects that cheat, on the CPU and on a stand-in for a GPU: each is rejected by its name, an honest one is not."""

from __future__ import annotations

import pytest
import stand_in_gpu
from click.testing import CliRunner
from in_process import in_process
from stand_in_gpu import StandInGpu

from evidence.__main__ import cli
from evidence.cheating import attacks, cheats
from evidence.cheating.cheats import CHEATS, Cheat
from harness.bench.rounds import Baseline
from harness.device.emulator import EmulatorDevice
from harness.errors import Exit
from harness.subjects.audit.bench import SubjectBench
from harness.subjects.device import with_subject
from harness.subjects.subject import Subject, load
from harness.verdict import Verdict

NAMES = {cheat.__name__: cheat for cheat in CHEATS}
OF_THE_PROCESS = {"AsksOracle", "SearchesMemory", "Leaves", "ForgesAnswers"}  # attack it, and the stand-in has none


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> StandInGpu:
    found = stand_in_gpu.install(monkeypatch)
    monkeypatch.setattr(SubjectBench, "_baseline", lambda *_: Baseline(why_not="nothing to compare with here"))
    return found


def on_the_gpu(gpu: StandInGpu, cheat: type[Cheat]):
    return attacks.run(gpu.against(load(f"{cheats.__name__}:{cheat.__name__}")), cheat, gpu.clock)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, cheat in NAMES.items() if not cheat.gpu and not cheat.timed])
def test_a_cheat_on_the_cpu(name: str):
    cheat = NAMES[name]
    device = with_subject(EmulatorDevice(), attacks.subject_of(cheat))
    result = attacks.run(device, cheat, None)
    device.child.end()
    assert (result.offence, result.verdict) == (cheat.violation, cheat.violation.verdict)
    assert result.reason.startswith(f"{cheat.violation}: ")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_THE_PROCESS])
def test_a_cheat_on_a_gpu(name: str, gpu: StandInGpu):
    result = on_the_gpu(gpu, NAMES[name])
    assert (result.offence, result.verdict) == (NAMES[name].violation, NAMES[name].violation.verdict), result.reason
    assert not result.times


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_an_honest_subject_is_timed(mode: str, gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Cheat, "mode", mode)
    result = on_the_gpu(gpu, Cheat)
    assert (result.verdict, result.offence) == (Verdict.PASS, "")
    assert result.times["median_us"] == pytest.approx(10.0, rel=1e-3)
    assert result.times["baseline"] == f"ours {result.case_id}"
    assert "every round on rows permuted for it and poison drawn for it, and compared" in result.times["measured"]
    assert result.subject.startswith("evidence.cheating.cheats:Cheat (source ")


@pytest.mark.parametrize("cheat", [cheat for cheat in CHEATS if cheat.timed], ids=lambda cheat: cheat.__name__)
def test_verification_alone_does_not_see_it(cheat: type[Cheat], gpu: StandInGpu):
    """Else the timing would prove nothing."""
    device = gpu.against(load(f"{cheats.__name__}:{cheat.__name__}"))
    assert attacks.run(device, cheat, None).verdict is Verdict.PASS


def test_the_table_has_every_cheat_and_where_it_ran():
    found = list(attacks.attacks(EmulatorDevice(), only=[cheats.SkipsWork, cheats.OtherStream]))
    words = dict(attacks.table(found).set_index("subject")["CPU"])
    assert words == {
        "(an honest subject)": "PASS",
        "SkipsWork": "UNWRITTEN skips_work",
        "OtherStream": "needs a GPU",
    }
    assert attacks.outcome(found) is Exit.CLEAN


def test_a_cheat_that_gets_away_is_red(monkeypatch: pytest.MonkeyPatch):
    honest = in_process(Subject("honest", "source 0", Cheat()))
    monkeypatch.setattr(attacks, "subject_of", lambda cheat: honest)
    found = list(attacks.attacks(EmulatorDevice(), only=[cheats.SkipsWork]))
    assert attacks.table(found)["CPU"][1] == "PASS: NOT CAUGHT"
    assert attacks.outcome(found) is Exit.BYTES_DIFFER


def test_the_command_writes_the_table(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attacks.attacks, "__defaults__", (None, (cheats.WritesOutside,)))
    done = CliRunner().invoke(cli, ["attack", "--device", "emulator", "--into", str(tmp_path)])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "attacks.md").read_text()
    assert "1 of 1 runs of a cheat were rejected by the name they must be" in text
    assert "OUT_OF_BOUNDS writes_outside" in text
