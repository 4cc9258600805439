from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import click
import numpy as np

from harness.commands import _shared
from harness.contract.case import Case
from harness.device import thread_trace
from harness.device.capability import incapable
from harness.device.device import Device, chosen_target
from harness.device.emulator import EmulatorDevice
from harness.device.select import select
from harness.errors import CaseError, DeviceUnavailable, Exit, UsageError
from harness.expected.expected import make_inputs, oracle_of
from harness.suite.suite import find_case
from harness.verify.diagnosis import trace

POISON = 0xA5


@click.command()
@click.argument("case_id", metavar="ID")
@click.option("--field", metavar="F", help="an output of the case, as in columnwise_data (the first)")
@click.option("--at", "element", default="0,0", metavar="R,C", help="an element of the tensor (0,0)")
@click.option("--tensor", default=0, metavar="G", help="a tensor of a group; the first is 0 (0)")
@click.option(
    "--thread",
    metavar="X,Y,Z[@X,Y,Z]",
    help="follow this thread, @ of this block (0,0,0), on the emulator, instruction by instruction",
)
@click.option("--kernel", metavar="NAME", help="with --thread, only the launches of this kernel (all)")
@click.option("--lines", type=click.IntRange(1), metavar="N", help="most lines of --thread (400)")
@_shared.device()
@click.option("--target", metavar="SM", help="what the kernel is compiled for (the device's first)")
@_shared.recipe_dir
def command(
    case_id: str,
    field: str | None,
    element: str,
    tensor: int,
    thread: str | None,
    kernel: str | None,
    lines: int | None,
    device_name: str,
    target: str | None,
) -> int:
    """Show one 16-value block of a case step by step, kernel beside oracles.

    --thread shows what one thread of the kernels executes instead, each instruction under its line of the .cu, with
    what it read and wrote; threads and blocks are written as screens name them. Exits with 1 if the kernel is stopped,
    4 if the emulator lacks what it uses.
    """
    case = find_case(case_id)
    if thread is not None:
        if field is not None or element != "0,0" or tensor:
            raise UsageError(
                "--thread follows instructions; --field, --at and --tensor name a block, so leave them out"
            )
        return _thread(case, thread, kernel, lines or 400, device_name, target)
    for name, value, does in (("--lines", lines, "bounds"), ("--kernel", kernel, "chooses among")):
        if value is not None:
            raise UsageError(f"{name} {does} what --thread shows; name a thread, as in 0,0,0@0,0,0, or leave it out")
    match = re.fullmatch(r"(\d+),(\d+)", element)
    if match is None:
        raise UsageError(f"--at '{element}' is not an element; write row,column, as in 17,4")
    chosen = select(device_name)
    target = chosen_target(chosen, target)
    case = replace(case, mode="eager")  # the mode changes no byte, and eager runs everywhere
    inputs = make_inputs(case)
    kernel = _run(case, chosen, target, inputs)
    click.echo(trace.trace(case, field, (int(match[1]), int(match[2])), kernel, inputs, tensor))
    return Exit.CLEAN


def _thread(case: Case, thread: str, kernel: str | None, lines: int, device_name: str, target: str | None) -> int:
    place = thread_trace.Place.of(thread)
    if kernel == "":
        raise UsageError("--kernel is empty; name one, or leave it out")
    if device_name == "cuda":
        raise UsageError("--thread follows a thread on the emulator; leave out --device cuda")
    chosen, case = EmulatorDevice(), replace(case, mode="eager")
    target = chosen_target(chosen, target)
    reason = incapable(case, chosen)
    if reason:
        raise DeviceUnavailable(f"{case.id}: {reason}")
    shown, stopped = thread_trace.follow(case, target, make_inputs(case), place, lines, kernel or "")
    click.echo(shown)
    if stopped:
        click.echo(f"stopped: {stopped}", err=True)
    return stopped.exit_code if stopped else Exit.CLEAN


def _run(case: Case, chosen: Device, target: str, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray] | None:
    """The kernel's outputs, or None, with the reason on stderr, if it cannot run here."""
    fields = oracle_of(case.recipe).outputs(case)
    reason = incapable(case, chosen)
    if reason:
        click.echo(f"without the kernel: {reason}", err=True)
        return None
    try:
        program = chosen.prepare(case, target, inputs, fields)
        outputs = program.run(POISON, 0).outputs
    except CaseError as error:
        click.echo(f"without the kernel: {error}", err=True)
        return None
    return {name: chosen.to_host(array, fields[name]) for name, array in outputs.items()}
