"""Dynamic shared memory, whose size a launch says. A recipe's launch says none, so that any access is out of bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping

from harness.errors import CompileError
from harness.jit.machine_code import without_other_kernels

_IN_PTX = re.compile(r"^\s*\.extern\s+\.shared\b[^;]*?([\w$]+)\s*\[\s*\]\s*;", re.MULTILINE)
_ALIGNED = r"(?:(?:__align__|alignas)\s*\([^()]*\)\s*)?"
_IN_SOURCE = re.compile(rf"\bextern\s+{_ALIGNED}__shared__\b[^;]*")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


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
