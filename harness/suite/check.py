"""Checks of a suite beyond its schema: flags and values exist, shapes fit, inputs and files exist.

An `…_error` function returns a sentence about what is wrong, or None.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from harness.contract.case import FlagValue
from harness.errors import ContractError, SuiteError
from harness.files import files_beside, is_file
from harness.ground.yaml_lines import Document, Route
from harness.inputs import draw, tensor_file
from harness.jit.signature import LIBRARY_CALLS
from harness.suite import flag_values, shapes, stage_checks
from harness.suite.flag_values import Errors
from harness.suite.schema import Block, Shape, SuiteFile, SuiteLaunch
from harness.suite.sizes import GEMM_NAMES, NAMES, size_error
from harness.text import nearest, spell

REQUIRED_SETS = ("smoke", "full", "bench")
OTHERS = "others"


def block_axes(file: SuiteFile, block: Block) -> dict[str, list[FlagValue]]:
    """The values a block gives to every flag, in axis order."""
    chosen = {} if isinstance(block.axes, str) else block.axes
    only_defaults = isinstance(block.axes, str) or OTHERS in chosen
    return {flag: chosen.get(flag, values[:1] if only_defaults else values) for flag, values in file.axes.items()}


def check(file: SuiteFile, document: Document, stem: str, root: Path, users: bool = False) -> None:
    """Raise SuiteError, with the line, for the first mistake.

    users: whether the suite is a user's, outside of the tree
    """
    for route, error in itertools.chain(_errors(file, stem, root), () if users else _complete_errors(file)):
        if error is not None:
            raise SuiteError(document.where(*route), error)


def _errors(file: SuiteFile, stem: str, root: Path) -> Errors:
    if file.recipe != stem:
        yield ("recipe",), f"recipe is '{file.recipe}' in a file named {stem}.yaml; both must be the recipe's stem"
    for flag, values in file.axes.items():
        yield from _axis_errors(flag, values)
    yield ("axes",), shapes.axes_error(file)
    for index, exclusion in enumerate(file.exclude):
        yield from flag_values.errors(file, ("exclude", index, "when"), exclusion.when)
    for index, combination in enumerate(file.apart):
        yield from flag_values.errors(file, ("apart", index), combination)
    for index, entry in enumerate(file.degenerate):
        yield from flag_values.errors(file, ("degenerate", index, "when"), entry.when)
        for number, name in enumerate(entry.inputs):
            yield ("degenerate", index, "inputs", number), input_error(name, root)
        for number, shape in enumerate(entry.shapes):
            yield ("degenerate", index, "shapes", number), _no_block_has(file, shape)
    for index, corner in enumerate(file.corners):
        yield from flag_values.errors(file, ("corners", index, "when"), corner.when)
        yield ("corners", index, "shape"), _no_block_has(file, corner.shape)
        yield from (
            (("corners", index, "tensors", number), error) for number, error in shapes.corner_errors(file, corner)
        )
    for index, launch in enumerate(file.launches):
        axes = flag_values.launch_axes(file)
        yield from flag_values.errors(file, ("launches", index, "when"), launch.when, axes)
        yield from flag_values.errors(file, ("launches", index, "unless"), launch.unless, axes)
        for flag, value in launch.flags.items():
            error = flag_values.flag_error(file, flag) or flag_values.value_error(file, flag, value)
            yield ("launches", index, "flags", flag), error
        yield from _memory_errors(file, ("launches", index), launch)
        if launch.library and launch.library not in LIBRARY_CALLS:
            sentence = f"there is no library call '{launch.library}'{nearest(launch.library, LIBRARY_CALLS)}"
            yield ("launches", index, "library"), sentence
        if launch.early and index == 0:
            sentence = f"the first launch, {launch.name}, is early, but there is none ahead of it; leave the key out"
            yield ("launches", index, "early"), sentence
    yield from stage_checks.entry_errors(file)
    for name, blocks in file.sets.items():
        for index, block in enumerate(blocks):
            yield from block_errors(file, ("sets", name, index), block, root)


def _complete_errors(file: SuiteFile) -> Errors:
    """Errors for keys that a suite of the harness must have and a user's may lack."""
    if not file.contract:
        yield (), "the suite lacks the key 'contract'"
    for name in REQUIRED_SETS:
        if name not in file.sets:
            yield ("sets",), f"there is no set '{name}'; a suite has {', '.join(REQUIRED_SETS)}"


def _axis_errors(flag: str, values: Sequence[FlagValue]) -> Errors:
    if flag == OTHERS:
        yield ("axes", flag), f"a flag cannot be called '{OTHERS}': sets use that word for all flags they do not name"
    if flag == flag_values.EDGES:
        yield ("axes", flag), f"a flag cannot be called '{flag}': launches have one of that name, by the key `tile`"
    for index, value in enumerate(values):
        if spell(value) in map(spell, values[:index]):
            yield ("axes", flag, index), f"axis {flag} lists '{spell(value)}' twice, as case ids write it"


def _memory_errors(file: SuiteFile, route: Route, launch: SuiteLaunch) -> Errors:
    for kind, sizes in launch.memory.items():
        for name, size in sizes.items():
            yield (*route, kind, name), size_error(size, GEMM_NAMES if file.gemm else NAMES)
    for name in launch.workspace.keys() & launch.scratch.keys():
        sentence = f"'{name}' is scratch of {launch.name} already; a workspace is never zeroed"
        yield (*route, "workspace", name), sentence
    for parameter, name in launch.reads.items():
        if name not in launch.workspace:
            sentence = f"'{name}' is no workspace of {launch.name}{nearest(name, launch.workspace)}"
            yield (*route, "reads", parameter), sentence


def block_errors(file: SuiteFile, route: Route, block: Block, root: Path) -> Errors:
    """Errors of a block, in a set or elsewhere."""
    if isinstance(block.axes, dict):
        others = block.axes.get(OTHERS, ["default"])
        if others != ["default"]:
            yield (*route, "axes", OTHERS), f"{OTHERS} is '{spell(others[0])}'; the only choice is default"
        named = {flag: values for flag, values in block.axes.items() if flag != OTHERS}
        yield from flag_values.errors(file, (*route, "axes"), named)
    for index, shape in enumerate(block.shapes):
        yield (*route, "shapes", index), shapes.block_error(file, block_axes(file, block), shape)
    for index, name in enumerate(block.inputs):
        yield (*route, "inputs", index), input_error(name, root)
    for index, mode in enumerate(block.modes):
        if mode in block.modes[:index]:
            yield (*route, "modes", index), f"mode '{mode}' is there twice"


def input_error(name: str, root: Path) -> str | None:
    """A sentence unless the input is a named distribution, or a tensor in an existing file (relative to `root`)."""
    if not name.startswith(tensor_file.PREFIX):
        known = [known for known, _ in draw.names()]
        return None if name in known else f"there is no input '{name}'{nearest(name, known)}"
    if not name.isprintable():
        return f"the input {ascii(name)} has a character that no case id may have"
    for part in tensor_file.parts_of(name):
        error = _file_error(part, root)
        if error:
            return error
    return None


def _file_error(name: str, root: Path) -> str | None:
    if not name.startswith(tensor_file.PREFIX):
        return f"'{name}' is no tensor of a file; each begins with {tensor_file.PREFIX}, also after a semicolon"
    text = name.removeprefix(tensor_file.PREFIX).partition("#")[0]
    path = root / text
    if is_file(path):
        return None
    others = [str(other.relative_to(root) if other.is_relative_to(root) else other) for other in files_beside(path)]
    return f"there is no file {text}{nearest(text, others) or f', and no file beside it under {root}'}"


def _no_block_has(file: SuiteFile, shape: str) -> str | None:
    """A sentence if an entry's shape matches no case, or ids spell it differently, so that it would excuse nothing."""
    listed = [each for blocks in file.sets.values() for block in blocks for each in block.shapes]
    spelled = set(map(_spelled, listed))
    return None if shape in spelled else f"no case has the shape '{shape}'{nearest(shape, sorted(spelled))}"


def _spelled(shape: Shape) -> str:
    """A shape as ids spell it; an illegal shape is returned unchanged, because its block reports it."""
    try:
        return shapes.canonical(shape) if isinstance(shape, str) else "x".join(map(str, shape))
    except ContractError:
        return str(shape)
