from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import numpy as np
from rich.table import Column, Table

from harness import text
from harness.api.cases import make_case
from harness.api.run import ORACLES, ask_oracle, run_kernel
from harness.commands import _shared
from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.errors import ContractError, DeviceUnavailable, UsageError
from harness.files import require_place
from harness.ground.command_lines import verify_command
from harness.inputs import tensor_file
from harness.suite.gemm_operands import shape_of_tensors
from harness.suite.suite import Suite, find_case, suite_of
from harness.suite.wanted import Wanted, pairs

_KERNEL, _SET = "kernel", "smoke"


@click.command()
@_shared.with_words(click.argument("what", metavar="ID|RECIPE"))
@click.option("--input", "-i", "inputs", multiple=True, metavar="FILE#NAME", help="a tensor of yours; one per operand")
@_shared.flags
@_shared.shape
@click.option("--by", type=click.Choice((_KERNEL, *ORACLES)), default=_KERNEL, help="who computes it (kernel)")
@_shared.device()
@click.option("--target", metavar="SM", help="what the kernel is compiled for (the device's first)")
@click.option("--out", type=_shared.FILE, metavar="FILE.safetensors", help="write every field")
@_shared.recipe_dir
def command(
    what: str,
    inputs: Sequence[str],
    flags: Sequence[str],
    shape: str | None,
    by: str,
    device_name: str,
    target: str | None,
    out: Path | None,
) -> None:
    """Run one case, or a recipe on tensors of yours, and write the arrays; nothing is compared.

    With a tensor, --flag sets a flag of the recipe, and a --shape that is smaller takes the tensor's top left corner;
    without one, they choose the smallest case of the smoke set. FILE is a .safetensors or .npy, relative to the working
    directory; a .npy has no #NAME. The line that is printed last verifies the same case, every byte of it.
    """
    if out is not None and out.suffix != ".safetensors":
        raise UsageError(f"--out {out} must end in .safetensors")
    if by != _KERNEL and target is not None:
        raise UsageError(f"--target {target} is a kernel's; leave it out with --by {by}")
    case = _case(what, [name.removeprefix(tensor_file.PREFIX) for name in inputs], flags, shape)
    if out is not None:
        require_place(out)
    if by == _KERNEL:
        try:
            fields = run_kernel(case, device_name, target)
        except DeviceUnavailable as reason:
            raise DeviceUnavailable(f"{reason}; --by numpy computes what the contract says, on any machine") from None
    else:
        fields = _ends(ask_oracle(case, by))
    click.echo(case.id)
    _show(fields)
    if out is not None:
        tensor_file.save(out, fields, {"case": case.id, "by": by})
        click.echo(out)
    click.echo(verify_command(case.id, device="" if device_name == "auto" else device_name))


def _case(what: str, inputs: Sequence[str], flags: Sequence[str], shape: str | None) -> Case:
    """The case that an id names, or that a recipe and tensors make. Raises UsageError."""
    if "/" in what:
        case = find_case(what)
        if flags:
            raise UsageError("--flag goes with the name of a recipe; an id has its flags")
        if not inputs and shape is None:
            return case
        suite, chosen, mode = suite_of(case.recipe), dict(case.flags), case.mode
    else:
        suite, mode = suite_of(what), "eager"
        if not inputs:
            return _smallest(suite, Wanted(tuple(flags), shape or ""))
        chosen = {name: suite.flag(name, value) for name, value in pairs(flags).items()}
    for each in inputs:
        if tensor_file.BETWEEN in each:
            between = tensor_file.BETWEEN
            raise UsageError(
                f"--input '{each}' has a '{between}', which parts tensors in a case id; give a link to the file"
            )
    name = tensor_file.BETWEEN.join(f"{tensor_file.PREFIX}{each}" for each in inputs)
    name = tensor_file.resolved(name, Path.cwd()) if inputs else case.input
    if "dtype" in suite.file.axes and not suite.file.gemm and inputs and "dtype" not in chosen:
        chosen |= _dtype(suite, name)
    spelled = shape or (_shape(suite, chosen, name) if inputs else case.shape)
    try:
        return make_case(suite.recipe, spelled, name, mode, **chosen)
    except UsageError as error:
        if shape or not inputs or "positive multiple" not in str(error):
            raise
        raise UsageError(f"{error}; --shape takes the top left corner of a tensor") from None


def _smallest(suite: Suite, wanted: Wanted) -> Case:
    """The smallest case of the smoke set that has what is wanted. Raises UsageError if none has, or nothing is."""
    if not wanted:
        raise UsageError(
            f"{suite.recipe} alone is no case; name a tensor with --input FILE#NAME, give a case id, or choose a case "
            f"of set {_SET} by --flag and --shape"
        )
    keep = wanted.keeps([suite])
    whole = [(suite, case) for case in suite.cases(_SET)]
    case = next((case for _, case in whole if keep(suite, case)), None)
    if case is None:
        raise UsageError(f"{wanted.none_of(whole, _SET)}; `harness run ID` takes any case")
    return case


def _dtype(suite: Suite, name: str) -> dict[str, str]:
    """The flag for the tensor's own dtype, if the recipe has that dtype."""
    dtype = tensor_file.dtype_of(tensor_file.parts_of(name)[0])
    return {"dtype": dtype} if dtype in suite.file.axes["dtype"] else {}


def _shape(suite: Suite, flags: Mapping[str, object], name: str) -> str:
    """The tensors' extents, as an id spells them."""
    shapes = [tensor_file.shape_of(part) for part in tensor_file.parts_of(name)]
    if suite.file.pipeline or "shape_representation" in suite.file.axes:
        raise UsageError(f"--shape is needed: the extents of {suite.recipe} do not follow from a tensor's")
    if not suite.file.gemm:
        if len(shapes) > 1:
            raise UsageError(f"--input is given {len(shapes)} times; {suite.recipe} takes one tensor")
        return "x".join(map(str, shapes[0]))
    if len(shapes) != 2:
        raise UsageError(f"{suite.recipe} multiplies two tensors; give --input twice, for A and for B")
    layout = str(flags.get("layout", suite.defaults.get("layout", "tn")))
    try:
        return "x".join(map(str, shape_of_tensors(layout, *shapes)))
    except ContractError as error:
        raise UsageError(f"{suite.recipe}: {error}") from None


def _ends(fields: Mapping[str, np.ndarray | Interval]) -> dict[str, np.ndarray]:
    """Replace an interval by its two ends, `output.low` and `output.high`."""
    found: dict[str, np.ndarray] = {}
    for name, value in fields.items():
        found |= (
            {f"{name}.low": value.low, f"{name}.high": value.high} if isinstance(value, Interval) else {name: value}
        )
    return found


def _show(fields: Mapping[str, np.ndarray]) -> None:
    table = Table(*(Column(name, overflow="fold") for name in ("field", "dtype", "shape", "sha256")))
    for name, array in fields.items():
        digest = hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8)).hexdigest()[:16]
        table.add_row(name, array.dtype.name, "x".join(map(str, array.shape)), digest)
    text.console().print(table)
