"""Whether kernels and their parameters agree with the launches, flags, arrays and numbers of a suite."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes  # noqa: F401 - has NumPy know bfloat16 by name
import numpy as np

from harness.contract.case import Case, FlagValue
from harness.errors import CompileError, ContractError, OracleError, RecipeError
from harness.expected.expected import expect, fields_of, make_inputs, oracle_of
from harness.files import KERNELS, ROOT, recipe_dir
from harness.jit.compile import include_closure, instantiation
from harness.jit.signature import Signature, TemplateParameter, read_signatures
from harness.suite.flag_values import launch_axes, position
from harness.suite.launch_plan import Step, bind, plans, scratch_and_workspace
from harness.suite.schema import SuiteLaunch
from harness.suite.suite import Suite
from harness.suite.suite_file import short
from harness.text import nearest, spell

_ENUM = re.compile(r"enum class (\w+)[^{;]*\{([^}]*)\}")
# The names that a kernel may use for the types of arrays.
_TYPES = {
    **dict.fromkeys(("u8", "uint8_t", "unsigned char"), "uint8"),
    **dict.fromkeys(("__nv_fp8_e4m3", "__nv_fp8_e5m2", "__nv_fp8_e8m0", "__nv_fp8_storage_t"), "uint8"),
    **dict.fromkeys(("u32", "uint32_t", "unsigned int", "unsigned"), "uint32"),
    **dict.fromkeys(("u16", "uint16_t", "unsigned short"), "uint16"),
    **dict.fromkeys(("bf16", "__nv_bfloat16", "nv_bfloat16"), "bfloat16"),
    **dict.fromkeys(("fp16", "__half", "half"), "float16"),
    **dict.fromkeys(("fp32", "float"), "float32"),
    **dict.fromkeys(("i64", "long long", "int64_t"), "int64"),
    **dict.fromkeys(("int", "int32_t"), "int32"),
}
_COMMENT = re.compile(r"//[^\n]*")


def _folder(recipe: str) -> str:
    """Where the kernel lies, for messages."""
    own = recipe_dir(recipe)
    return f"{short(own) if own else KERNELS.relative_to(ROOT)}"


def kernel_errors(suite: Suite) -> Iterator[str]:
    """Kernels, template parameters and pointers that only one of `S.cu` and `S.yaml` names."""
    path, folder = (recipe_dir(suite.recipe) or KERNELS) / f"{suite.recipe}.cu", _folder(suite.recipe)
    ours = path.parent == KERNELS
    if ours and not path.read_text(encoding="utf-8").startswith(f"// {suite.recipe}: "):
        yield f"{folder}/{path.name}:1: the file must begin with what it is, as in `// {suite.recipe}: one amax ...`"
    try:
        signatures = read_signatures(suite.recipe)
        enums = _enums(suite.recipe)
    except CompileError as error:
        yield f"{folder}/{error}"
        return
    text = _COMMENT.sub("", "\n".join(include_closure(path).values()))
    for index, launch in enumerate(suite.file.launches):
        if launch.kernel:
            yield from _launch_errors(suite, index, launch, signatures)
        if launch.kernel in signatures and not re.search(rf"\b{launch.kernel}_launch\b", text):
            declared = f"__constant__ Launch {launch.kernel}_launch = {{rows, cols, threads, blocks_per_sm, schedule}};"
            yield f"{folder}/{signatures[launch.kernel].where}: there is no geometry of {launch.kernel}: `{declared}`"
    for name, signature in signatures.items():
        launches = [launch for launch in suite.file.launches if launch.kernel == name]
        if not launches:
            yield f"{folder}/{signature.where}: no launch of {suite.name} names the kernel '{name}'"
        for parameter in signature.template if launches else ():
            yield from _template_errors(suite, signature, parameter, launches, enums)


def _launch_errors(suite: Suite, index: int, launch: SuiteLaunch, signatures: Mapping[str, Signature]) -> Iterator[str]:
    route = ("launches", index)
    if launch.kernel not in signatures:
        choices = nearest(launch.kernel, signatures)
        yield f"{suite.document.where(*route, 'kernel')}: {suite.recipe}.cu has no kernel '{launch.kernel}'{choices}"
        return
    pointers = [parameter.name for parameter in signatures[launch.kernel].call if parameter.pointer]
    for name in (name for name in launch.reads if name not in pointers):
        at = suite.document.where(*route, "reads", name)
        yield f"{at}: {launch.kernel} has no pointer '{name}'{nearest(name, pointers)}"
    names = [launch.reads.get(name, name) for name in pointers]
    for kind, sizes in launch.memory.items():
        for name in (name for name in sizes if name not in names):
            at = suite.document.where(*route, kind, name)
            yield f"{at}: {launch.kernel} has no pointer '{name}'{nearest(name, names)}"


def _template_errors(
    suite: Suite,
    signature: Signature,
    parameter: TemplateParameter,
    launches: Sequence[SuiteLaunch],
    enums: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    flag, where = parameter.flag, f"{_folder(suite.recipe)}/{signature.where}"
    axes = launch_axes(suite.file)
    if flag not in axes:
        choices = nearest(flag, axes)
        yield f"{where}: template parameter '{parameter.name}' names no flag of {suite.name}{choices}"
        return
    axis = axes[flag]
    for index, value in enumerate(axis):
        asked = any(
            position(value, [launch.flags[flag]] if flag in launch.flags else launch.when.get(flag, axis)) is not None
            for launch in launches
        )
        if asked and suite.refusal({flag: value}) is None and not _fits(parameter.kind, value, enums):
            choices = nearest(value, enums.get(parameter.kind, ()))
            yield (
                f"{suite.document.where('axes', flag, index)}: {flag} is '{spell(value)}', which is no "
                f"`{parameter.kind} {parameter.name}` of {signature.where}{choices}"
            )


def _fits(kind: str, value: FlagValue, enums: Mapping[str, Sequence[str]]) -> bool:
    if kind in ("bool", "int") and not isinstance(value, str):
        return isinstance(value, int) and isinstance(value, bool) == (kind == "bool")
    return value in enums.get(kind, ())


def _enums(recipe: str) -> dict[str, list[str]]:
    """Enumerators by enum, types by `typename` and constants by `int`, in a `.cu` and all it includes."""
    text = _COMMENT.sub("", "\n".join(include_closure((recipe_dir(recipe) or KERNELS) / f"{recipe}.cu").values()))
    found = {name: re.findall(r"\w+(?=\s*(?:,|=|$))", body.strip()) for name, body in _ENUM.findall(text)}
    types, constants = r"\b(?:using|struct|class) (\w+)\b", r"^constexpr int (\w+) = "
    return {**found, "typename": re.findall(types, text), "int": re.findall(constants, text, re.MULTILINE)}


def binding_errors(suite: Suite) -> Iterator[str]:
    """Parameters that no case of the suite binds, and kernels that no case launches."""
    null: dict[str, set[str]] = {}
    own = recipe_dir(suite.recipe) is not None
    waiting = {launch.kernel for launch in suite.file.launches if launch.kernel}
    for case in _variants(suite, lambda: bool(waiting or any(null.values()))):
        try:
            arrays = {**fields_of(case), **make_inputs(case)}
            if own:  # reports an error in a user's oracle once, and not once per case
                expect(case)
                yield from _mistake_errors(suite.recipe)
                own = False
            for step, memory in _steps(case):
                instantiation(step.signature, step.flags)
                yield from _dtype_errors(step, arrays)
                bound = zip(step.signature.call, bind(step, {**arrays, **memory}), strict=True)
                absent = {parameter.name for parameter, (_, value) in bound if value is None}
                null[step.signature.name] = null.get(step.signature.name, absent) & absent
                waiting.discard(step.signature.name)
        except (CompileError, OracleError, RecipeError) as error:
            yield f"{_folder(suite.recipe)}/{error}"
            return
        except ImportError as error:
            yield f"harness/oracles/{suite.recipe}.py:1: it cannot be imported: {error}"
            return
        except ContractError as error:
            yield f"{case.where}: the oracle refuses {case.id}: {error}; the suite must exclude it"
            return
    for kernel in sorted(waiting):
        yield f"{suite.document.where('launches')}: no case of any set launches '{kernel}'"
    for kernel, names in null.items():
        for name in sorted(names):
            where = read_signatures(suite.recipe)[kernel].where
            null_in_all = f"parameter '{name}' of {kernel} is null in every case; no array has that name"
            yield f"{_folder(suite.recipe)}/{where}: {null_in_all}"


def _mistake_errors(recipe: str) -> Iterator[str]:
    """Functions that the MISTAKES of a recipe's oracle would change and that it does not have."""
    oracle, where = sys.modules[oracle_of(recipe).__name__], f"{_folder(recipe)}/{recipe}.py:1"
    mistakes = getattr(oracle, "MISTAKES", {})
    if not isinstance(mistakes, dict) or not all(isinstance(functions, dict) for functions in mistakes.values()):
        yield f'{where}: MISTAKES has no form {{"a name": {{"a function of this file": its wrong form}}}}'
        return
    for mistake, functions in mistakes.items():
        for name in functions:
            if not callable(getattr(oracle, name, None)):
                choices = nearest(name, [own for own, value in vars(oracle).items() if callable(value)])
                yield f"{where}: MISTAKES has '{mistake}' by '{name}', which is no function there{choices}"


def _dtype_errors(step: Step, arrays: Mapping[str, Any]) -> Iterator[str]:
    """Pointers to another type than their array has. arrays: fields and NumPy's, by parameter"""
    types = {parameter.name: step.flags[parameter.flag] for parameter in step.signature.template}
    for parameter in step.signature.call:
        array = arrays.get(step.key(parameter.name)) if parameter.pointer else None
        known = _TYPES.get(str(types.get(parameter.type, parameter.type)))
        if array is not None and known and not _reads(np.dtype(known), np.dtype(array.dtype)):
            where = f"{_folder(step.case.recipe)}/{step.signature.where}"
            yield (
                f"{where}: parameter '{parameter.name}' of {step.signature.name} is a pointer to {parameter.type}, "
                f"which is {known}, and the oracle has {np.dtype(array.dtype).name} there"
            )


def _reads(kernel: np.dtype, array: np.dtype) -> bool:
    """Whether a kernel's type can read an array's; an unsigned integer reads the bits of any type of its width."""
    return kernel == array or (kernel.kind == "u" and kernel.itemsize == array.itemsize)


def _steps(case: Case) -> Iterator[tuple[Step, dict[str, int]]]:
    """The launches of a case and their memory, both where CTAs that wait for each other fit on the device and not."""
    for steps in plans(case):
        scratch, workspace = scratch_and_workspace(steps)
        yield from ((step, {**scratch, **workspace}) for step in steps if not step.library)


def _variants(suite: Suite, unfinished: Callable[[], bool]) -> Iterator[Case]:
    """The smallest case for every combination of flags in the smoke set and, while unfinished, in the other sets."""
    seen = set()
    for name in sorted(suite.sets, key=lambda name: name != "smoke"):
        for case in suite.cases(name) if name == "smoke" or unfinished() else ():
            if case.flags not in seen and (name == "smoke" or unfinished()):
                seen.add(case.flags)
                yield case
