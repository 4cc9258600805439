"""What measures the harness itself, on commands and a case that take no time."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from evidence import speed
from evidence.__main__ import main
from evidence.speed import RATE, Measured, SpeedGoal
from harness.errors import Exit, HarnessError

QUICK = SpeedGoal("quick", "a command that does little", 60, "sleep 0.05")


@pytest.fixture
def rows(monkeypatch):
    """Puts other rows in place of the table."""
    return lambda *others: monkeypatch.setattr(speed, "rows", lambda: others)


@pytest.fixture
def harness_speed():
    """Runs the command; its exit code."""

    def run(*words: object) -> Exit:
        with pytest.raises(SystemExit) as done:
            main(["speed", *map(str, words)])
        return Exit(done.value.code)

    return run


def test_filled_caches_are_filled_first_and_empty_ones_are_weighed(tmp_path) -> None:
    speed.measure(replace(QUICK, command=f"echo once >> {tmp_path}/warm"))
    assert (tmp_path / "warm").read_text() == "once\n" * 2
    cold = replace(
        QUICK, command='mkdir "$HARNESS_CACHE"; head -c 200000 /dev/zero > "$HARNESS_CACHE/k"', start="empty"
    )
    assert speed.measure(cold).cache_mb == 0.2


def test_wall_and_cpu_seconds_are_those_of_the_command(tmp_path) -> None:
    wall, cpu = speed.run("sleep 0.3", tmp_path)
    assert wall >= 0.3 > cpu
    _, cpu = speed.run(f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.3: pass'", tmp_path)
    assert cpu >= 0.3


def test_a_command_that_fails_has_no_time_and_says_why(tmp_path) -> None:
    with pytest.raises(HarnessError, match="failed with 3, so it has no time:\nthe reason"):
        speed.run("echo the reason; exit 3", tmp_path)


def test_the_emulator_has_a_rate() -> None:
    rate, cpu = speed.emulate("swizzle/default/16x16/normal/eager")
    assert rate > 0 and cpu > 0


def test_every_row_has_one_name_and_one_thing_to_measure() -> None:
    table = speed.rows()
    assert len({row.name for row in table}) == len(table)
    assert all(bool(row.command) != bool(row.case) for row in table)


def test_seconds_are_better_below_and_rates_above() -> None:
    seconds = Measured("a", "", "", "", goal=10, unit="s", value=8, cpu_s=1)
    rate = replace(seconds, unit=RATE)
    assert seconds.holds and not rate.holds
    assert replace(seconds, value=16).times_slower(seconds) == 2
    assert replace(rate, value=4).times_slower(rate) == 2


def test_what_is_written_is_what_is_compared_with(rows, harness_speed, tmp_path, capsys) -> None:
    rows(QUICK)
    assert harness_speed("--into", tmp_path) is Exit.CLEAN
    assert "a command that does little | sleep 0.05 | filled" in (tmp_path / "speed.md").read_text()
    file = tmp_path / "speed.jsonl"
    assert harness_speed("--against", file, "--ratio", 1000) is Exit.CLEAN
    header, row = map(json.loads, file.read_text().splitlines()[:2])
    file.write_text(speed.lines(header, [Measured(**row | {"value": 0.01})]))
    assert harness_speed("--against", file) is Exit.SLOWER
    assert "quick: 0.1 s, and it was 0.0" in capsys.readouterr().out
    file.write_text(speed.lines(header | {"machine": {"cores": 1000}}, []))
    assert harness_speed("--against", file) is Exit.USAGE
    assert "and this machine is" in capsys.readouterr().err
    file.write_text("{}\n")
    assert harness_speed("--against", file) is Exit.USAGE


def test_a_goal_that_is_missed_is_red(rows, harness_speed) -> None:
    rows(replace(QUICK, goal=1e-9))
    assert harness_speed() is Exit.SLOWER


def test_a_row_that_needs_a_gpu_is_left_out_without_one(rows, harness_speed, monkeypatch, capsys) -> None:
    rows(QUICK, replace(QUICK, name="full", gpu=True))
    monkeypatch.setattr(speed, "possible", lambda row: not row.gpu)
    assert harness_speed() is Exit.CLEAN
    assert "full: left out, because this machine has no GPU" in capsys.readouterr().out


def test_a_row_that_is_not_there_is_a_sentence(harness_speed, capsys) -> None:
    assert harness_speed("--row", "smke") is Exit.USAGE
    assert "there is no row 'smke'; did you mean 'smoke'" in capsys.readouterr().err


def test_a_row_that_fails_loses_no_other(rows, harness_speed, tmp_path, capsys) -> None:
    rows(QUICK, replace(QUICK, name="broken", command="echo why; exit 3"), replace(QUICK, name="quick2"))
    assert harness_speed("--into", tmp_path) is not Exit.CLEAN
    assert [json.loads(line)["name"] for line in (tmp_path / "speed.jsonl").read_text().splitlines()[1:]] == [
        "quick", "quick2",
    ]  # fmt: skip
    assert "broken: `echo why; exit 3` failed with 3" in capsys.readouterr().err
