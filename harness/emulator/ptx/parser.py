"""Parse a module: the part of PTX 8.x and 9.x that NVRTC prints, inline assembly included."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from harness.emulator.errors import NotEmulated
from harness.emulator.ptx.declarations import variable
from harness.emulator.ptx.kernel_body import BodyParser
from harness.emulator.ptx.syntax import Kernel, Variable


@dataclass(frozen=True)
class Program:
    """A module; `kernel` parses the bodies of its kernels on demand."""

    target: str
    variables: dict[str, Variable]
    files: dict[int, str]
    entries: dict[str, tuple[str, str, str]]

    def kernel(self, name: str) -> Kernel:
        """Parse one entry. Raises KeyError for an unknown name."""
        parameters, directives, body = self.entries[name]
        declared = [variable(item, "param") for item in parameters.split(",") if item.strip()]
        kernel = Kernel(name, tuple(declared))
        limit = re.search(r"\.maxntid\s+([\d,\s]+)", directives)
        if limit:
            kernel.max_threads = 1
            for extent in limit[1].split(","):
                kernel.max_threads *= int(extent)
        BodyParser(kernel, self.files).parse(body)
        return kernel


_TOP = re.compile(
    r"""\s+ | \.version[^\n]* | \.address_size[^\n]* | \.target\s+(?P<target>\w+)[^\n]*
    | \.file\s+(?P<index>\d+)\s+"(?P<file>[^"]*)"[^\n]* | \.section[^{]*\{[^}]*\}
    | (?P<head>[^;{}=()]*\.(?:entry|func)\b) | (?P<statement>\.[^;]*;)""",
    re.VERBOSE,
)
_ENTRY = re.compile(r"\s*([\w$]+)\s*(?:\(([^)]*)\))?\s*([^{;]*)")


def parse(text: str) -> Program:
    """Split a module into variables and entries. Raises NotEmulated for an unknown construct."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", "", text)
    target, variables, files, entries = "", {}, {}, {}
    at = 0
    while at < len(text):
        match = _TOP.match(text, at)
        if not match:
            raise NotEmulated(f"not emulated: the PTX directive {text[at : at + 60].split(chr(10))[0]!r}")
        at = match.end()
        if match["target"]:
            target = match["target"]
        elif match["index"]:
            files[int(match["index"])] = PurePath(match["file"]).name
        elif match["statement"]:
            statement = match["statement"][:-1]
            if re.search(r"\.(const|global|shared)\b", statement):
                declared = variable(statement)
                variables[declared.name] = declared
        elif match["head"]:
            at = _function(text, at, match["head"].rstrip().endswith(".entry"), entries)
    return Program(target, variables, files, entries)


def _function(text: str, at: int, is_entry: bool, entries: dict[str, tuple[str, str, str]]) -> int:
    """Skip one device function, or store one entry; returns where it ends."""
    if not is_entry:
        returned = re.compile(r"\s*\([^)]*\)").match(text, at)
        at = returned.end() if returned else at
    match = _ENTRY.match(text, at)
    if text[match.end()] == ";":
        return match.end() + 1
    end = _closing_brace(text, match.end())
    if is_entry:
        entries[match[1]] = (match[2] or "", match[3], text[match.end() + 1 : end])
    return end + 1


def _closing_brace(text: str, at: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return match.start()
    raise NotEmulated("not emulated: a PTX function without an end")
