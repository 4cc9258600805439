"""Kernels of a `.cu` file with their template and call parameters, read from the source.

Names are the binding: a template parameter takes the value of the flag of that name, a call parameter the array or
number of that name. `Optional<const T> name` is a pointer that may be null, `InPlace<T> name` one to an array that is
read before it is written. Calls of GPU libraries, which a suite may list among its launches, have signatures, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harness.errors import CompileError
from harness.files import KERNELS, recipe_dir

# A kernel's attributes, as __launch_bounds__(256, 2) and __cluster_dims__(2, 2, 1), with nested parentheses
ATTRIBUTES = r"(?:__\w+__\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\s*)*"
_KERNEL = re.compile(
    r"(?:template\s*<(?P<template>[^;{}]*?)>\s*)?"
    rf"__global__\s+{ATTRIBUTES}void\s+{ATTRIBUTES}(?P<name>(?!__)\w+)\s*\((?P<call>[^{{]*?)\)\s*\{{",
    re.DOTALL,
)
_COMMENT = re.compile(r"//[^\n]*")
_MARKED = re.compile(r"(?P<mark>Optional|InPlace)<(?:const )?(?P<type>\w+)>")


@dataclass(frozen=True)
class TemplateParameter:
    """kind: `typename`, `bool`, `int` or the name of an enum; name: as in the source, `Dtype` or `rounding`."""

    kind: str
    name: str

    @property
    def flag(self) -> str:
        """The flag that gives the value: a type `Dtype` is chosen by the flag `dtype`."""
        return self.name.lower() if self.kind == "typename" else self.name

    def spell(self, value: object) -> str:
        if self.kind == "bool":
            return "true" if value else "false"
        return str(value) if self.kind in ("typename", "int") else f"{self.kind}::{value}"


@dataclass(frozen=True)
class CallParameter:
    """type: as in the source, without qualifiers; optional: marked `Optional<>`; in_place: marked `InPlace<>`."""

    type: str
    name: str
    pointer: bool
    optional: bool = False
    in_place: bool = False


@dataclass(frozen=True)
class Signature:
    """One `__global__` function of the file at `path`, with the line its name stands on."""

    path: Path
    name: str
    line: int
    template: tuple[TemplateParameter, ...]
    call: tuple[CallParameter, ...]

    @property
    def where(self) -> str:
        return f"{self.path.name}:{self.line}"


def source_text(path: Path, name: str) -> str:
    """The text of a `.cu` or `.cuh`, without a byte order mark. Raises CompileError if it is not UTF-8, or OSError."""
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise CompileError(
            f"{name}:{line}: byte {error.start}, 0x{content[error.start]:02x}, is no UTF-8; save the file as UTF-8"
        ) from None


def read_signatures(stem: str, folder: Path = KERNELS) -> dict[str, Signature]:
    """Every kernel of `<folder>/<stem>.cu` by name. Raises CompileError without the file or a readable parameter."""
    path = (recipe_dir(stem) or folder) / f"{stem}.cu"
    try:
        source = source_text(path, path.name)
    except OSError as error:
        raise CompileError(f"{path.name}: cannot read the kernel's source: {error.strerror}") from None
    return _signatures(path, source)


@lru_cache(maxsize=64)  # every case asks for its recipe's signatures
def _signatures(path: Path, source: str) -> dict[str, Signature]:
    found = {}
    for match in _KERNEL.finditer(source):
        line = source.count("\n", 0, match.start("name")) + 1
        template = tuple(_template_parameter(text, path.name, line) for text in _split(match["template"] or ""))
        call = tuple(_call_parameter(text, path.name, line) for text in _split(match["call"]))
        found[match["name"]] = Signature(path, match["name"], line, template, call)
    return found


def _split(text: str) -> list[str]:
    return [part.strip() for part in _COMMENT.sub("", text).split(",") if part.strip()]


def _template_parameter(text: str, file: str, line: int) -> TemplateParameter:
    words = text.split()
    if len(words) != 2:
        raise CompileError(f"{file}:{line}: template parameter {text!r} is not of the form `Kind name`")
    return TemplateParameter(*words)


def _call_parameter(text: str, file: str, line: int) -> CallParameter:
    *words, name = text.replace("*", " * ").replace("__restrict__", " ").split()
    marked = _MARKED.fullmatch(" ".join(words))
    if marked:
        mark = marked["mark"]
        return CallParameter(marked["type"], name, True, optional=mark == "Optional", in_place=mark == "InPlace")
    if not words or name == "*" or "<" in text:
        raise CompileError(
            f"{file}:{line}: parameter {text!r} is not of the form `type name`, `Optional<type> name` or "
            "`InPlace<type> name`"
        )
    kind = " ".join(word for word in words if word not in ("const", "*"))
    return CallParameter(kind, name, "*" in words)


def _product(name: str, *written: CallParameter) -> Signature:
    """The signature of a product of a_decoded (M, K) and b_decoded (N, K)^T."""
    operands = (CallParameter("bf16", f"{operand}_decoded", pointer=True) for operand in "ab")
    extents = (CallParameter("int", extent, pointer=False) for extent in "MKN")
    return Signature(Path(__file__), name, 1, template=(), call=(*operands, *written, *extents))


_LIBRARY_CALLS = (
    _product("cublas_gemm", CallParameter("float", "acc", pointer=True)),
    # output = factor * acc, in the dtype that the flag names
    _product(
        "cublas_scaled_gemm",
        CallParameter("float", "factor", pointer=True),
        CallParameter("Dtype", "output", pointer=True),
    ),
)
LIBRARY_CALLS = {signature.name: signature for signature in _LIBRARY_CALLS}
