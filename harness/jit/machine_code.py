"""What compiled code tells: a digest of machine code, the resources it takes, and whether its shared memory is dynamic.

The digest is equal for two revisions exactly if a GPU does the same.

Line numbers, file names and debug sections are left out, so that a comment or a moved header changes nothing.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from harness.errors import CompileError

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_VARIABLE = re.compile(
    r"^\s*(?:\.(?:visible|extern|weak|common)\s+)*\.(?P<space>const|global)\s+(?P<type>(?:\.\w+\s+(?:\d+\s+)?)+)"
    r"(?P<name>[\w$]+)(?P<value>[^;]*);",
    re.MULTILINE,
)
_LINES = re.compile(r"^\s*(?:\.(?:loc|file)\b|//)[^\n]*\n|^\s*\.section\s+\.debug_\w+\s*\{[^}]*\}", re.MULTILINE)
_KERNEL = re.compile(r"^[.\w ]*\.entry\s+(?P<name>[\w$]+)\(.*?^\}$", re.MULTILINE | re.DOTALL)
_IN_PTX = re.compile(r"^\s*\.extern\s+\.shared\b[^;]*?([\w$]+)\s*\[\s*\]\s*;", re.MULTILINE)
_ALIGNED = r"(?:(?:__align__|alignas)\s*\([^()]*\)\s*)?"
_IN_SOURCE = re.compile(rf"\bextern\s+{_ALIGNED}__shared__\b[^;]*")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def code_digest(cubin: bytes, ptx: str, symbol: str, resources: Iterable[tuple[str, int]]) -> str:
    """SHA-256, in hexadecimal, of the kernel's instructions, constants and resources.

    cubin, ptx: of the same compilation, which may have other kernels, too; the PTX tells which variables it names
    resources: registers, spills and shared memory by name
    """
    from elftools.elf.elffile import ELFFile

    found = hashlib.sha256()
    constants = _constants(without_other_kernels(ptx, symbol))
    for part in (*_sections(ELFFile(io.BytesIO(cubin)), symbol), *constants, repr(sorted(resources)).encode()):
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()


def ptx_digest(ptx: str, symbol: str) -> str:
    """SHA-256, in hexadecimal, of the kernel's PTX and the variables that it names, without line numbers."""
    own = _LINES.sub("", without_other_kernels(ptx, symbol))
    found = hashlib.sha256()
    for part in (_VARIABLE.sub("", own).encode(), *_constants(own)):
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()


def _sections(elf: ELFFile, symbol: str) -> Iterable[bytes]:
    """Instructions, constant banks, and where the loader patches the instructions."""
    from elftools.elf.relocation import RelocationSection

    for section in sorted(elf.iter_sections(), key=lambda section: section.name):
        kind = section.name.removesuffix(f".{symbol}")
        if kind != section.name and re.fullmatch(r"\.text|\.nv\.constant\d", kind):
            yield kind.encode() + section.data()
        elif isinstance(section, RelocationSection) and kind in (".rela.text", ".rel.text"):
            patches = [(each["r_offset"], each["r_info_type"]) for each in section.iter_relocations()]
            yield repr(sorted(patches)).encode()


def without_other_kernels(ptx: str, symbol: str) -> str:
    """The PTX without its other entries."""
    return _KERNEL.sub(lambda kernel: kernel[0] if kernel["name"] == symbol else "", ptx)


def _constants(ptx: str) -> list[bytes]:
    """Variables of the module that some instruction names: type and initial value, whatever they are called."""
    named = set(re.findall(r"[\w$]+", _VARIABLE.sub("", ptx)))
    return [
        " ".join((each["space"], *each["type"].split(), *each["value"].split())).encode()
        for each in _VARIABLE.finditer(ptx)
        if each["name"] in named
    ]


def require_static(ptx: str, symbol: str, sources: Mapping[str, str], where: str) -> None:
    """Raise CompileError for a kernel that uses dynamic shared memory, at the line that declares it.

    symbol: the kernel's in the PTX; sources: text by file; where: the kernel's place, used if no line has the
    declaration
    """
    if ".extern .shared" not in ptx:
        return
    own = _IN_PTX.sub("", without_other_kernels(ptx, symbol))
    used = [name for name in _IN_PTX.findall(ptx) if re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", own)]
    if used:
        raise CompileError(
            f"{_declaration(used[0], sources) or where}: `extern __shared__`: a recipe's launch has no dynamic shared "
            "memory; make it static, or launch it with a card (`shared:`)"
        )


def _declaration(variable: str, sources: Mapping[str, str]) -> str:
    """File and line of the declaration of a variable, whose name may be mangled; empty if there is none."""
    for file, text in sources.items():
        bare = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
        for match in _IN_SOURCE.finditer(bare):
            names = re.findall(r"\w+(?=\s*\[)", match[0])
            if any(name == variable or f"{len(name)}{name}" in variable for name in names):
                return f"{file}:{bare.count(chr(10), 0, match.start()) + 1}"
    return ""


def resources_of(log: str, symbol: str) -> dict[str, int]:
    """Registers, spills and shared memory from the lines that `ptxas -v` writes about the kernel `symbol`."""
    _, _, of_kernel = log.partition(f"entry function '{symbol}'")
    of_kernel, _, _ = of_kernel.partition("entry function")

    def number(pattern: str) -> int:
        return sum(int(found) for found in re.findall(pattern, of_kernel))

    return {
        "registers": number(r"Used (\d+) registers"),
        "spill_bytes": number(r"(\d+) bytes spill (?:stores|loads)"),
        "stack_bytes": number(r"(\d+) bytes stack frame"),
        "shared_bytes": number(r"(\d+) bytes smem"),
    }
