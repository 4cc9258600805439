"""The kernels of a card: entries of PTX with their parameters, a cubin, or a `.cu` that NVRTC compiles to PTX."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from harness.errors import CompileError, NoDevice, NotEmulated, UsageError
from harness.files import is_file, resolved_path
from harness.jit import cuda_headers
from harness.jit.compile import FLAGS, LINES
from harness.jit.foreign_sources import refusal, sources_of, trusted_folders, words_and_folders
from harness.jit.nvrtc import UNNAMED, build
from harness.jit.signature import ATTRIBUTES
from harness.text import nearest
from ptx_emulator.errors import NotEmulated as LacksConstruct
from ptx_emulator.ptx.parser import Program, parse
from ptx_emulator.ptx.syntax import Variable, variable

_VERSION = re.compile(r"^\s*\.version\b", re.MULTILINE)
_KIND = re.compile(r"\.(pred|[busf]\d+|bf16|f16x2|bf16x2)\b")
_MISSING = re.compile(r'cannot open source file "(.+)"')
_GLOBAL = re.compile(rf"\b__global__\s+{ATTRIBUTES}void\s+{ATTRIBUTES}((?!__)\w+)\s*\(")
_EXTENTS = r"\.{}\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?"


class NoSuchKernel(UsageError):
    """A `.cu` compiles but has no kernel of that name."""

    def __init__(self, kernel: str, sentence: str):
        super().__init__(sentence)
        self.kernel = kernel


@dataclass(frozen=True)
class Parameter:
    """One parameter of an entry. kind: of PTX, `u64`; size, align: bytes; pointer: whether PTX says that it is one"""

    name: str
    kind: str
    size: int
    align: int
    pointer: bool

    def __str__(self) -> str:
        if self.pointer:
            return "a pointer"
        return f"{self.size} bytes" if self.kind == "b8" else f".{self.kind}"


@dataclass(frozen=True, eq=False)
class Code:
    """The code that a card launches. name: as in the card; ptx: empty for a cubin; cubin: empty for anything else;
    symbols: entry by a launch's `kernel`
    """

    name: str
    ptx: str
    cubin: bytes
    symbols: Mapping[str, str]

    @property
    def file(self) -> str:
        """The file that a line of the PTX is named by, where the PTX has no source lines."""
        return self.name.rpartition("/")[2] if self.name.endswith(".ptx") else "ptx"

    @property
    def image(self) -> bytes:
        """The image that a GPU's driver loads."""
        return self.cubin or self.ptx.encode()

    @cached_property
    def program(self) -> Program:
        try:
            return parse(self.ptx)
        except LacksConstruct as error:
            if not _VERSION.search(self.ptx):
                raise UsageError(f"{self.name}: this is no PTX, it has no .version: {error}") from None
            raise NotEmulated(f"{self.name}: {error}") from None

    def symbol(self, kernel: str) -> str:
        """The entry for a launch's kernel, or the one that its pattern matches. Raises UsageError if there is none."""
        found = self.symbols.get(kernel, kernel)
        if not self.cubin and found not in self.program.entries and "*" in kernel:
            fitting = [entry for entry in self.program.entries if fnmatchcase(entry, kernel)]
            if len(fitting) == 1:
                return fitting[0]
            if fitting:
                raise UsageError(f"{self.name} has {len(fitting)} entries that '{kernel}' fits: {', '.join(fitting)}")
        if not self.cubin and found not in self.program.entries:
            raise UsageError(
                f"{self.name} has no entry '{kernel}'{nearest(kernel, self.program.entries) or '; it has none at all'}"
            )
        return found

    def variable(self, name: str) -> Variable | None:
        """The variable of this name, or the one that its pattern matches; None for a cubin, which only a GPU reads.

        Raises UsageError if there is none that a host can set, or several.
        """
        if self.cubin:
            return None
        there = {each.name: each for each in self.program.variables.values() if each.space in ("const", "global")}
        fitting = [name] if name in there else [each for each in there if fnmatchcase(each, name)]
        if len(fitting) > 1:
            raise UsageError(f"{self.name} has {len(fitting)} variables that '{name}' fits: {', '.join(fitting)}")
        if not fitting:
            sentence = f"{self.name} has no variable '{name}'"
            raise UsageError(sentence + (nearest(name, there) or "; it has none that a host can set"))
        return there[fitting[0]]

    def parameters(self, kernel: str) -> tuple[Parameter, ...] | None:
        """The parameters of an entry; None for a cubin, whose parameters are only known on the GPU."""
        return parameters_of(self.program, self.symbol(kernel)) if not self.cubin else None


def runs_on(target: str, gpu: str) -> bool:
    """Whether a GPU runs PTX of this target. gpu: its own target, `sm_90a`

    `sm_90` runs on 9.0 and everything newer, `sm_90a` on 9.0 alone, `sm_100f` on 10.0 and what is newer of 10 (PTX
    ISA, `.target`).
    """
    number, kind = int(re.sub(r"\D", "", target)), target[-1]
    own = int(re.sub(r"\D", "", gpu))
    if kind == "a":
        return own == number
    return own >= number and (kind != "f" or own // 10 == number // 10)


def parameters_of(program: Program, entry: str) -> tuple[Parameter, ...]:
    found = []
    for item in filter(str.strip, program.entries[entry].parameters.split(",")):
        declared, kind = variable(item, "param"), _KIND.search(re.sub(r"\.ptr\b.*", "", item))
        found.append(Parameter(declared.name, kind[1] if kind else "b8", declared.size, declared.align, ".ptr" in item))
    return tuple(found)


def block_of(program: Program, entry: str) -> tuple[int, ...]:
    """The threads that the entry declares as required, or as the maximum; empty if it declares none."""
    for directive in ("reqntid", "maxntid"):
        said = re.search(_EXTENTS.format(directive), program.entries[entry].directives)
        if said:
            return tuple(int(extent) for extent in said.groups() if extent)
    return ()


def read_code(
    path: Path, name: str, kernels: Sequence[str], arch: str, options: Sequence[str], folders: Sequence[Path] = ()
) -> Code:
    """Read a card's code. kernels: its launches' kernels; arch, options, folders: for compiling a `.cu`

    folders: of the card, for includes, beside the file's own

    Raises UsageError if it cannot be read, has no such kernel, or does not compile for want of a header, an option or
    an architecture, which the card or the machine has to bring; CompileError for any other mistake in a `.cu`.
    """
    if not is_file(path):
        raise UsageError(f"{name}: there is no such file")
    if (there := resolved_path(path)).suffix != path.suffix:
        raise UsageError(f"{name}: this is a link to {there.name}, whose name does not end in {path.suffix}")
    content = path.read_bytes()
    match path.suffix:
        case ".ptx":
            return Code(name, _text(content, name), b"", {})
        case ".cubin":
            return Code(name, "", content, {})
        case ".cu":
            return _compiled(path, name, _text(content, name), kernels, arch, options, folders)
    raise UsageError(f"{name}: code is a .ptx, a .cubin or a .cu file")


def _text(content: bytes, name: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name}: this is no text, byte {error.start} cannot be decoded; a cubin ends in .cubin"
        ) from None


def _compiled(
    path: Path, name: str, text: str, kernels: Sequence[str], arch: str, options: Sequence[str], folders: Sequence[Path]
) -> Code:
    try:
        sources = sources_of(path, options, folders)
    except UsageError as refused:
        raise UsageError(f"{name}: {refused}") from None
    words = [
        *FLAGS,
        LINES,
        f"-arch={arch.replace('sm_', 'compute_')}",
        *(f"-I{folder}" for folder in trusted_folders()),
        *words_and_folders(options, path.parent)[0],
    ]
    try:
        names = [kernel for kernel in dict.fromkeys(kernels) if not kernel.startswith("_Z")]  # the name is not mangled
        built = build(sources.main, sources.texts, names, words)
    except CompileError as error:
        unnamed = UNNAMED.search(str(error))
        if unnamed and unnamed[2] in names:
            raise NoSuchKernel(unnamed[2], _without_kernel(name, unnamed[2], unnamed[1], text)) from None
        if of_the_host := cuda_headers.of_the_host(str(error), {name: text}, (path.parent, *folders)):
            raise UsageError(of_the_host) from None
        if told := refusal(str(error)):
            raise UsageError(told) from None
        refused_by = UsageError if _MISSING.search(str(error)) else CompileError
        raise refused_by(f"{name}: NVRTC refused it for {arch}: {_first_error(str(error))}") from None
    except NoDevice as error:
        raise UsageError(f"{name}: NVRTC refused it for {arch}: {error}") from None
    return Code(name, built.ptx, b"", built.symbols)


def _without_kernel(name: str, kernel: str, reason: str, text: str) -> str:
    """The sentence about a kernel that a `.cu` lacks. reason: NVRTC's, which matters where the name is right"""
    kernels = list(dict.fromkeys(_GLOBAL.findall(text)))
    if kernel.partition("<")[0] in kernels:
        return f"{name} has no kernel '{kernel}': {reason}"
    return f"{name} has no kernel '{kernel}'{nearest(kernel, kernels) or ': ' + reason}"


def _first_error(log: str) -> str:
    lines = [line.strip().removeprefix("./") for line in log.splitlines() if line.strip()]
    first = next((line for line in lines if "error" in line), lines[0] if lines else "without a word")
    missing = _MISSING.search(first)
    hint = cuda_headers.remedy(missing[1]) if missing else ""
    if missing and not hint and not cuda_headers.installable(missing[1]):
        hint = "name the folder that has it with --include"
    return f"{first}; {hint}" if hint else first
