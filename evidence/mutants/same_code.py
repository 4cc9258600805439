"""Check whether a mutant behaves like the right sources, by its kernels' code or its oracles' answers."""

from __future__ import annotations

import ast
import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from evidence.mutants.catalogue import KERNELS, Mutant
from evidence.mutants.reach import recipes_of
from harness.contract.case import Case
from harness.device.emulator import EmulatorDevice
from harness.errors import CompileError, SuiteError
from harness.expected.expected import Expected, expect
from harness.files import KERNELS as RIGHT
from harness.files import PACKAGE
from harness.jit.compile import Compiled, compile_kernel, ptx_of
from harness.jit.geometry import LaunchGeometry
from harness.jit.machine_code import ptx_digest
from harness.jit.signature import read_signatures
from harness.suite.instantiations import instantiations
from harness.suite.launch_plan import Step, all_steps
from harness.verify.corner import expected_at_end, larger_cases

_TARGETS = EmulatorDevice.targets
_DIGESTS: dict[str, str] = {}  # code digest by cache key


def of_case(case: Case, kernels: Path) -> bool:
    """Whether the case has the same launches with the same code as with the right kernels. Raises CompileError."""
    return _same_launches(replace(case, input="", mode="eager"), kernels)


def everywhere(mutant: Mutant, kernels: Path) -> bool:
    """Whether every instantiation that a suite runs is the same code as with the right kernels, or the syntax tree of
    an oracle is the same. Raises CompileError.

    kernels: the folder of kernels with the mistake
    """
    if mutant.tree != KERNELS:
        return same_syntax(mutant)
    reached = recipes_of(mutant.file)
    for job in instantiations((), [ptx_of(target) for target in _TARGETS]):
        if job.signature.path.stem in reached:
            wrong = read_signatures(job.signature.path.stem, kernels).get(job.signature.name)
            if wrong is None or (wrong.template, wrong.call) != (job.signature.template, job.signature.call):
                return False
            if _code(compile_kernel(wrong, job.flags, job.arch)) != _code(job.compile()):
                return False
    return True


def same_syntax(mutant: Mutant) -> bool:
    """Whether an oracle's file has the same syntax tree as the right one; False for a kernel. Raises CompileError."""
    if mutant.tree == KERNELS:
        return False
    right = (PACKAGE / mutant.file).read_text(encoding="utf-8")
    try:
        return ast.dump(ast.parse(right)) == ast.dump(ast.parse(mutant.changed()))
    except SyntaxError as error:
        raise CompileError(f"{mutant.file}: {error}") from None


def answer(case: Case) -> str:
    """A digest of the oracles' answer for a case: inputs, fields, and their bytes or intervals, at each corner too."""
    expected = expect(case)
    found = hashlib.sha256(_digest(expected))
    for larger in larger_cases(case):
        try:
            end = expected_at_end(larger, case, expected)
        except SuiteError as error:
            found.update(str(error).encode())
            continue
        if end is not expected:
            found.update(_digest(end))
    return found.hexdigest()


def _digest(expected: Expected) -> bytes:
    found = hashlib.sha256(repr((sorted(expected.fields.items()), expected.disagreement)).encode())
    for name, array in sorted(expected.inputs.items()):
        found.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    for name, value in sorted(expected.values.items()):
        parts = (value,) if isinstance(value, np.ndarray) else (value.low, value.high, value.ordered)
        for part in (part for part in parts if part is not None):
            found.update(f"{name} {part.dtype} {part.shape}".encode() + np.ascontiguousarray(part).tobytes())
    return found.digest()


@cache
def _same_launches(case: Case, kernels: Path) -> bool:
    return all(_launches(case, target, kernels) == _launches(case, target, RIGHT) for target in _TARGETS)


def _launches(case: Case, target: str, kernels: Path) -> list[tuple]:
    """Every launch that the case may have, for devices that its CTAs fit at once and for others."""
    return [
        (step.signature.name, step.signature.call, step.together, _code(_compiled(step, target)))
        for step in all_steps(case, kernels)
        if not step.library
    ]


def _compiled(step: Step, target: str) -> Compiled:
    return compile_kernel(step.signature, step.flags, ptx_of(target))


def _code(compiled: Compiled) -> tuple[LaunchGeometry, str]:
    if compiled.key not in _DIGESTS:
        _DIGESTS[compiled.key] = ptx_digest(compiled.ptx, compiled.symbol)
    return compiled.launch, _DIGESTS[compiled.key]
