"""Rules that a recipe of the tree keeps beyond those of a user's: its texts here, its cases in `set_rules`.

Every error is a sentence that starts with `file:line`. The functions of one file are also for headers and for modules
that are no recipe's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

from harness.check import citations
from harness.errors import CompileError
from harness.files import KERNELS
from harness.jit.signature import read_signatures
from harness.suite.suite import Suite
from harness.suite.suite_file import short

SCHEMA_LINE = "# yaml-language-server: $schema=schema.json\n"  # by which editors find the schema
MOST_LINES = {".py": 400, ".cu": 650, ".cuh": 450}
# A number of the contract, or an instruction that converts
NUMERICS = re.compile(
    r"\b(448|2688|1536)(\.0*)?f?\b|\b(6\.0*|0?\.25|1\.5)f\b|FLT_MAX|0x7F7FFFFF|\bcvt\.", re.IGNORECASE
)
MAY_IMPORT = (
    "harness.contract.case.",
    "harness.errors.",
    "harness.contract.group_arrays.",
    "harness.contract.group_shape.",
    "harness.contract.interval.",
    "harness.contract.problem.",
    "harness.contract.field.",
    "harness.oracles.",
)
TOLERANCES = {"atol", "rtol", "allclose", "isclose", "assert_close", "approx"}
VARIABLE = re.compile(r"""(?:environ(?:\.get)?[(\[]|getenv\()\s*["'](\w+)""")

_INCLUDE = re.compile(r'^#include "([^"]+)" *$', re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*")
_DECLARED = re.compile(
    r"^(?:struct|enum class|using|#define) (?:alignas\(\d+\) )?(\w+)"  # a type or a macro
    r"|^constexpr [\w ]+ (k\w+)"
    r"|^(?:__device__|__host__|constexpr|[A-Z][\w<>]* (?=\w+\())[^;{}=]*?\b(\w+)\((?=[^;]*\{)",  # a function
    re.MULTILINE,
)


def text_errors(suite: Suite, kernel: Path, oracle: Path) -> Iterator[str]:
    """The mistakes in the texts of a recipe's three files."""
    for path in (kernel, oracle, suite.path):
        text = path.read_text(encoding="utf-8")
        yield from citations.missing(path, text)
        yield from length_errors(path)
    yield from source_errors(kernel)
    yield from _pointer_errors(suite.recipe, kernel)
    yield from oracle_errors(oracle)
    yield from python_errors(oracle)
    yield from suite_errors(suite)
    yield from _step_errors(suite, oracle)


def suite_errors(suite: Suite) -> Iterator[str]:
    """The mistakes in the text of a suite, a pipeline's too: its schema and its contract."""
    if not suite.path.read_text(encoding="utf-8").startswith(SCHEMA_LINE):
        yield f"{short(suite.path)}:1: editors do not find its schema; the first line is `{SCHEMA_LINE.rstrip()}`"
    numbers = citations.CONTRACT.fullmatch(suite.file.contract)
    known = citations.sections()
    if not numbers or not set(re.findall(r"\d+(?:\.\d+)*", numbers[1])) <= known.keys():
        at = suite.document.where("contract")
        yield f"{at}: contract is '{suite.file.contract}', no section of docs/numerics.md; one reads `NUMERICS 3`"


def length_errors(path: Path) -> Iterator[str]:
    lines, most = path.read_text(encoding="utf-8").count("\n"), MOST_LINES.get(path.suffix)
    if most and lines > most:
        yield f"{short(path)}:{most + 1}: the file has {lines} lines; at most {most} are read at once"


# Kernels


def source_errors(path: Path) -> Iterator[str]:
    """The mistakes in a `.cu` or `.cuh` of the tree: numbers of the contract outside of numerics/, and includes."""
    text, name = path.read_text(encoding="utf-8"), path.relative_to(KERNELS).as_posix()
    if path.parent.name != "numerics":
        plain = re.sub(r"/\*.*?\*/|//[^\n]*", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
        for number, line in enumerate(plain.splitlines(), 1):
            if found := NUMERICS.search(line):
                what = f"the number or instruction '{found[0]}' is the contract's"
                yield f"{short(path)}:{number}: {what}, which stands in kernels/numerics alone; include its header"
    if re.search(r"#\s*include.*oracle", text):
        line = text.count("\n", 0, re.search(r"#\s*include.*oracle", text).start()) + 1
        yield f"{short(path)}:{line}: a kernel includes nothing of an oracle's, with which it shares no code"
    headers = includes(name)
    for header in headers:
        at = f"{short(path)}:{_line(text, f'#include {chr(34)}{header}{chr(34)}')}"
        if floor(header) > floor(name):
            yield f"{at}: {header} is above {name} in the table of harness/kernels/README.md; includes lead down"
        elif (KERNELS / header).is_file() and not used(name, header):
            yield f"{at}: nothing of {header} is used here; remove the include"
    if sorted(headers) != headers:
        first = next(one for one, other in zip(headers, sorted(headers), strict=True) if one != other)
        at = f"{short(path)}:{_line(text, f'#include {chr(34)}{first}{chr(34)}')}"
        yield f"{at}: includes are in the order of the alphabet: {', '.join(sorted(headers))}"


def _pointer_errors(recipe: str, path: Path) -> Iterator[str]:
    try:
        signatures = read_signatures(recipe)
    except CompileError:  # told where parameters are bound
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    for signature in signatures.values():
        for number, line in enumerate(lines[signature.line :], signature.line + 1):
            if line.rstrip().endswith(") {"):
                break
            if re.search(r"\*|<", line.partition("//")[0]) and "// (" not in line:
                yield f"{short(path)}:{number}: a pointer says its shape, as in `// (rows, cols/2)`, behind it"


@cache
def floors() -> tuple[str, ...]:
    """From the ground up; the recipes are the roof."""
    return tuple(re.findall(r"^\| `(\w+)/`", (KERNELS / "README.md").read_text(encoding="utf-8"), re.MULTILINE))


def floor(name: str) -> int:
    """0 is the ground floor; the recipes, and folders that are no floor, have the highest number."""
    folder, slash, _ = name.rpartition("/")
    return floors().index(folder) if slash and folder in floors() else len(floors())


def _code(name: str) -> str:
    return _COMMENT.sub("", (KERNELS / name).read_text(encoding="utf-8"))


def includes(name: str) -> list[str]:
    """The headers of ours that a file below `kernels/` includes."""
    return _INCLUDE.findall(_code(name))


def used(name: str, header: str) -> set[str]:
    """The names of a header that a file mentions."""
    declared = {next(filter(None, found)) for found in _DECLARED.findall(_code(header))}
    return declared & set(re.findall(r"\w+", _code(name).replace(header, "")))


def _line(text: str, part: str) -> int:
    return text.count("\n", 0, text.index(part)) + 1


# Oracles


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of every module that a file imports, wherever in it; `from a import b` counts as `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{name.name}") for name in node.names)


def oracle_errors(path: Path) -> Iterator[str]:
    """Errors for the imports by which a module of oracles would know of kernels."""
    for line, name in imports(ast.parse(path.read_bytes())):
        if name.startswith("harness") and not name.startswith(MAY_IMPORT):
            which = ", ".join(each.rstrip(".") for each in MAY_IMPORT)
            yield f"{short(path)}:{line}: an oracle knows nothing of {name}; of ours it imports {which}"


def python_errors(path: Path, environment: Collection[str] = ()) -> Iterator[str]:
    """Asserts, tolerances, and variables of the environment other than these."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assert):
            yield f"{short(path)}:{node.lineno}: an assert is left out by `python -O`; raise an error of harness.errors"
        for field in ("id", "attr", "arg", "name"):
            if (name := getattr(node, field, None)) in TOLERANCES:
                line = getattr(node, "lineno", 1)
                yield f"{short(path)}:{line}: the tolerance '{name}' is none of an exact comparison's; compare bytes"
    for found in VARIABLE.finditer(text):
        if found[1] not in environment:
            at = f"{short(path)}:{text.count(chr(10), 0, found.start()) + 1}"
            yield f"{at}: it reads {found[1]} of the environment, which chooses no byte; make it a flag of the suite"


def _step_errors(suite: Suite, oracle: Path) -> Iterator[str]:
    """One numbering: step 4 of the docstring is step 4 of the page. Section 1 is about formats and has none."""
    section = suite.file.contract.removeprefix("NUMERICS ")
    found = citations.steps(ast.get_docstring(ast.parse(oracle.read_bytes()), clean=False) or "")
    right = citations.steps(citations.sections().get(section, ""))
    if section not in ("", PLAIN_SECTION) and section in citations.sections() and found != right:
        yield (
            f"{short(oracle)}:1: the docstring has the steps {_listed(found)}, and {suite.file.contract} in "
            f"docs/numerics.md has {_listed(right)}; both have the same"
        )


PLAIN_SECTION = "1"  # of formats, which has no steps


def _listed(numbers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "none"
