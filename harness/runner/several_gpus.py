"""A bench shared by the GPUs of one host: each times a shard in a run of its own, and the shards become one run.

A case and its baseline are timed on the same GPU. All must be of one kind, which the merge checks.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from harness.bench import ahead
from harness.device.capability import gpu_count
from harness.errors import DeviceUnavailable, Exit, UsageError, exit_of, worst
from harness.files import WORKDIR
from harness.ground.command_lines import include_options, recipe_dir_options
from harness.records import journal
from harness.records.run_folder import new_folder
from harness.runner.request import Request

_TAKEN = ("--shard", "--ahead", "-n")  # options that each shard sets itself


def count_of(asked: str) -> int:
    """The number of GPUs that `--gpus` asks for. Raises UsageError if it is not a number or too large.

    Raises DeviceUnavailable if there is no GPU.
    """
    have = gpu_count()
    if asked == "all":
        return max(1, have)
    if not asked.isdecimal() or int(asked) < 1:
        raise UsageError(f"--gpus {asked} is no number of GPUs; give one, as in --gpus 2, or all")
    if int(asked) > have:
        refuse = UsageError if have else DeviceUnavailable
        raise refuse(f"--gpus {asked}: CUDA sees {have}")
    return int(asked)


def bench(words: Sequence[str], suites: Sequence[str], count: int, runs: Path) -> Exit:
    """Run `harness bench` with these words on so many GPUs, and merge what they timed into the folder of the run.

    suites: the files that the words name, or their folder
    count: GPUs to use; there are no more shards than cases to share
    runs: where a run without --run-dir gets its folder. With --resume the shards continue.
    Returns the worst code of the shards, or that of the merge. Raises UsageError for options that each shard sets
    itself.
    """
    for word in words:
        if word.partition("=")[0] in _TAKEN:
            raise UsageError(f"{word} does not go with --gpus, which gives every GPU a shard and processes of its own")
    request = Request.of([*suites, *words, "--bench"], Path.cwd(), WORKDIR)
    if request.narrowing.keyword or request.narrowing.deselected or request.narrowing.wanted:
        raise UsageError(
            "-k, --flag, --shape and --deselect do not go with --gpus, whose shards become one run only if they are "
            "whole; name recipes, --set or --case"
        )
    # The modes of a case are in one shard, and a shard without a case ends as a mistake.
    cases = request.selected().selection.by_id.values()
    count = min(count, max(1, len({case.data_id for case in cases})))
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--resume", action="store_true")
    own, rest = parser.parse_known_args(list(words))
    if own.run_dir is None:
        if own.resume:
            raise UsageError("--resume with --gpus goes on with the shards below --run-dir DIR; name it")
        own.run_dir = new_folder(runs=runs)
    # Checked before the shards run for hours, because they are merged into this folder.
    journal.refuse_begun(own.run_dir, "that of several GPUs needs a new folder, or one with unfinished shards alone")
    parts = [own.run_dir / f"gpu{number + 1}" for number in range(count)]
    shards = [_Shard(rest, number, parts, own.resume) for number in range(count)]
    try:
        codes = [shard.wait() for shard in shards]
    except KeyboardInterrupt:
        for shard in shards:
            shard.process.send_signal(signal.SIGINT)
        codes = [shard.wait() for shard in shards]
    if any(codes):
        print(f"shards in {', '.join(map(str, parts))} ended with {codes}; --resume goes on with what is unfinished")
        return worst(map(exit_of, codes))
    options = ["--into", str(own.run_dir), *recipe_dir_options(), *include_options()]
    merge = [sys.executable, "-m", "harness", "merge", *map(str, parts), *options]
    return exit_of(subprocess.run(merge, check=False).returncode)


class _Shard:
    """A process that times one shard on one GPU. Its output lines are prefixed with the GPU's number."""

    def __init__(self, words: Sequence[str], number: int, parts: Sequence[Path], resume: bool):
        count, folder = len(parts), parts[number]
        going_on = resume and (folder / journal.FILE).exists()
        own = ["--shard", f"{number + 1}/{count}", "--run-dir", str(folder), *(["--resume"] if going_on else [])]
        own += ["--ahead", str(ahead.processes() // count)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "harness", "bench", *words, *own],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": _visible(number)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=_pass_on, args=(self.process.stdout, f"gpu {number + 1}: "), daemon=True)
        self._reader.start()

    def wait(self) -> int:
        code = self.process.wait()
        self._reader.join()
        return code


def _visible(number: int) -> str:
    """A GPU's name for CUDA_VISIBLE_DEVICES, given the variable's present value."""
    names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return names[number].strip() if names else str(number)


def _pass_on(lines: IO[str], before: str) -> None:
    with lines:
        for line in lines:
            sys.stdout.write(before + line)
            sys.stdout.flush()
