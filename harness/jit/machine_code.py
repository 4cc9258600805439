"""A digest of a kernel's machine code, equal for two revisions exactly if a GPU does the same.

Line numbers, file names and debug sections are left out, so that a comment or a moved header changes nothing.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_VARIABLE = re.compile(
    r"^\s*(?:\.(?:visible|extern|weak|common)\s+)*\.(?P<space>const|global)\s+(?P<type>(?:\.\w+\s+(?:\d+\s+)?)+)"
    r"(?P<name>[\w$]+)(?P<value>[^;]*);",
    re.MULTILINE,
)
_LINES = re.compile(r"^\s*(?:\.(?:loc|file)\b|//)[^\n]*\n|^\s*\.section\s+\.debug_\w+\s*\{[^}]*\}", re.MULTILINE)
_KERNEL = re.compile(r"^[.\w ]*\.entry\s+(?P<name>[\w$]+)\(.*?^\}$", re.MULTILINE | re.DOTALL)


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
