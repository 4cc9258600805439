"""Parse a module: the part of PTX 8.x and 9.x that NVRTC prints, inline assembly included."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import NamedTuple

from ptx_emulator.errors import NotEmulated
from ptx_emulator.ptx import limits
from ptx_emulator.ptx.inlining import Functions, InliningParser
from ptx_emulator.ptx.syntax import PTX, Kernel, Variable, check_total, malformed, variable

_MOST_THREADS = 1024  # threads of a block


class Entry(NamedTuple):
    """The text of one kernel or function. line: where its body starts; results: of a function"""

    parameters: str
    directives: str
    body: str
    line: int
    results: str = ""


@dataclass(frozen=True)
class Program:
    """A module; `kernel` parses the bodies of its kernels on demand.

    functions: by name, None without a body; name: of the file that its own lines are of
    """

    target: str
    variables: dict[str, Variable]
    files: dict[int, str]
    entries: dict[str, Entry]
    functions: dict[str, Entry | None]
    name: str

    def kernel(self, name: str) -> Kernel:
        """Parse one entry. Raises KeyError for an unknown name, NotEmulated for text it cannot read."""
        entry = self.entries[name]
        try:
            kernel = Kernel(name, _parameters(entry.parameters), max_threads=_most_threads(entry.directives))
            kernel.cluster = _cluster(entry.directives)
        except (NotEmulated, *limits.UNREADABLE) as error:
            raise malformed("", 0, entry.line, error) from None
        functions = Functions(self.functions, lambda: self.pointed_at)
        InliningParser(kernel, self.files, self.name, functions).parse(entry.body, entry.line)
        return kernel

    @cached_property
    def pointed_at(self) -> frozenset[str]:
        """The functions whose addresses the module takes."""
        named = {name for variable in self.variables.values() for _, name in variable.addresses}
        for entry in (*self.entries.values(), *filter(None, self.functions.values())):
            named.update(re.findall(r"[\w$]+", _CALL.sub("", entry.body)))
        return frozenset(named & self.functions.keys())


_TOP = re.compile(
    r"""\s+ | (?P<header>\.(?:version|address_size|target)\b[^\n]*)
    | \.file\s+(?P<index>\d+)\s+"(?P<file>[^"\n]*)"[^\n]* | \.section[^{;]*\{[^}]*\}
    | (?P<head>[^;{}=()]*\.(?:entry|func)\b) | (?P<statement>\.[^;]*;)""",
    re.VERBOSE,
)
_HEADER = re.compile(r"\.version\s+\d+\.\d+|\.address_size\s+64|\.target\s+(?P<target>sm_\d+[af]?)(?:\s*,\s*\w+)*")
_ENTRY = re.compile(r"\s*([\w$]+)\s*(?:\(([^)]*)\))?\s*([^{;]*)")
_CALL = re.compile(r"\bcall\b[^;]*;")
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|//[^\n]*", re.DOTALL)


def parse(text: str, name: str = PTX) -> Program:
    """Split a module into variables and entries. Raises NotEmulated for an unknown construct.

    name: of its file, for places that have no line of a source
    """
    if len(text) > limits.TEXT:
        raise NotEmulated(f"not emulated: PTX of {len(text)} characters; {limits.TEXT} are allowed")
    text = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    program = Program("", {}, {}, {}, {}, name)
    at, line = 0, 1
    while at < len(text):
        match = _TOP.match(text, at)
        try:
            if not match:
                raise NotEmulated(f"the directive {text[at : at + 60].partition(chr(10))[0]!r}")
            program, end = _construct(program, text, match, line)
        except (NotEmulated, *limits.UNREADABLE) as error:
            raise malformed(text, at, 1, error) from None
        at, line = end, line + text.count("\n", at, end)
    return program


def _construct(program: Program, text: str, match: re.Match, line: int) -> tuple[Program, int]:
    """Add the construct that was matched on a line to the program; return it and where the construct ends."""
    if match["header"]:
        return _with_header(program, match["header"].strip()), match.end()
    if match["index"]:
        program.files[int(match["index"])] = PurePath(match["file"]).name
    elif match["head"]:
        end, name, entry = _function(text, match, line)
        if match["head"].endswith(".func"):
            program.functions[name] = entry or program.functions.get(name)
        elif entry:
            program.entries[name] = entry
        return program, end
    elif match["statement"] and re.search(r"\.(const|global|shared)\b", match["statement"][: limits.HEADER]):
        declared = variable(match["statement"][:-1])
        program.variables[declared.name] = declared
        check_total(program.variables)
    return program, match.end()


def _with_header(program: Program, text: str) -> Program:
    found = _HEADER.fullmatch(text)
    if not found:
        raise NotEmulated(f"the directive {text[:60]!r}")
    if re.search(r",\s*debug\b", text):
        raise NotEmulated(
            f"code for a debugger, {text!r}; compile without -G, and with -lineinfo, which names lines, too"
        )
    return replace(program, target=found["target"]) if found["target"] else program


def _parameters(text: str) -> tuple[Variable, ...]:
    declared = tuple(variable(item, "param") for item in text.split(",") if item.strip())
    total = sum(parameter.size + parameter.align for parameter in declared)
    if total > limits.PARAMETERS:
        raise NotEmulated(f"parameters of {total} bytes; {limits.PARAMETERS} are allowed")
    if len({parameter.name for parameter in declared}) < len(declared):
        raise NotEmulated("two parameters of one name")
    return declared


def _most_threads(directives: str) -> int:
    """The most threads of a block, from `.maxntid`."""
    said = re.search(r"\.maxntid\s+([\d,\s]+)", directives)
    return min(_MOST_THREADS, math.prod(int(extent) for extent in said[1].split(","))) if said else _MOST_THREADS


def _cluster(directives: str) -> tuple[int, int, int] | None:
    """The blocks of a cluster, from `.reqnctapercluster`; None without it."""
    said = re.search(r"\.reqnctapercluster\s+([\d,\s]+)", directives)
    extents = [int(extent) for extent in said[1].split(",")] if said else []
    return (*extents, 1, 1, 1)[:3] if extents else None


def _function(text: str, head: re.Match, line: int) -> tuple[int, str, Entry | None]:
    """Where one function ends, its name, and its text if it has a body. head: its first words, on a line"""
    at, results = head.end(), ""
    if head["head"].endswith(".func"):
        returned = re.compile(r"\s*\(([^)]*)\)").match(text, at)
        at, results = (returned.end(), returned[1]) if returned else (at, "")
    match = _ENTRY.match(text, at)
    if not match or match.end() == len(text):
        raise NotEmulated("a function without a body")
    if text[match.end()] == ";":
        return match.end() + 1, match[1], None
    start, end = match.end() + 1, _closing_brace(text, match.end())
    line += text.count("\n", head.start(), start)
    return end + 1, match[1], Entry(match[2] or "", match[3], text[start:end], line, results)


def _closing_brace(text: str, at: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return match.start()
    raise NotEmulated("a function without an end")
