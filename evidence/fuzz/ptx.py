"""Mutated PTX: refused with a sentence, a fault, or a launch, the same by compiled code and by NumPy's steps."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import numpy as np

from evidence.fuzz.ptx_corpus import ours, short
from ptx_emulator.counters import Counters
from ptx_emulator.errors import Fault, LaunchError, NotEmulated
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer

OURS = 0.02  # share of trials with one of our kernels, which takes as long as dozens of short ones
BUDGET = 20_000  # instructions of a batch
BYTES = 4096  # of a buffer

_TOKEN = re.compile(r"[\w$%.]+|\s+|.", re.DOTALL)
_NUMBERS = (
    "0", "1", "-1", "2", "3", "7", "15", "31", "32", "33", "63", "64", "127", "128", "255", "256", "1023", "1024",
    "1025", "65535", "65536", "2147483647", "2147483648", "-2147483648", "4294967295", "4294967296",
    "9223372036854775807", "9223372036854775808", "18446744073709551616", "0xFFFFFFFF", "0x7f", "077", "089", "0b101",
    "1e9", "0f7F800000", "0fFFC00000", "0d7FF0000000000000", "9" * 40, "9" * 5000,
)  # fmt: skip
_WORDS = (
    "{", "}", "[", "]", "(", ")", ";", ",", "|", ":", "@", "!", "=", "+", "<", ">", "/*", "//", "\n", "\0", "\ud800",
    "é", "_", "%", "$", ".", "..", ".entry", ".func", ".reg", ".shared", ".local", ".param", ".global", ".const",
    ".align", ".loc 1 1 1, function_name x, inlined_at 1 1 1", ".branchtargets", ".maxntid", ".version", ".section",
    '.file 1 "x"', ".pragma", "{" * 100, "[" * 100, " " * 5000, "x" * 5000, ".b8 x[99999999999];", "%r<9999999>",
    "bra k;", "ret", "exit", "trap", "bar.sync", "%tid.x", "%ctaid.x", "%laneid", "%clock", "WARP_SZ", "%p0", "%rd0",
    "wgmma.fence.sync.aligned;", "wgmma.wait_group.sync.aligned 0;", "call.uni x;", "-1",
)  # fmt: skip
_TYPES = (
    "b8", "u8", "s8", "b16", "u16", "s16", "f16", "bf16", "b32", "u32", "s32", "f32", "f16x2", "bf16x2", "b64", "u64",
    "s64", "f64", "pred", "v2", "v4", "v8", "global", "shared", "local", "param", "const", "rn", "rz", "wide", "lo",
    "hi", "sat", "ftz", "NaN", "sync", "aligned", "volatile", "relaxed", "x2", "x4", "trans",
)  # fmt: skip


def prepare() -> None:
    """Load and compile what every trial needs, so that this does not count as a trial's time."""
    for text in (*short(), *ours()):
        _tried(text, random.Random(0), 256)


def trial(rng: random.Random) -> str:
    """Say what went wrong with one mutated text; empty if nothing did."""
    real = rng.random() < OURS
    texts = ours() if real else short()
    text = mutated(rng.choice(texts), rng, texts)
    try:
        return _tried(text, rng, 256 if real else rng.choice((1, 32, 40, 64)))
    except BaseException as error:
        error.add_note(f"\n{text!a}")
        raise


def mutated(text: str, rng: random.Random, others: tuple[str, ...]) -> str:
    """The text after one to four changes, most often one."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        text = rng.choice(_CHANGES)(text, rng, others)
    return text


def _tried(text: str, rng: random.Random, block: int) -> str:
    grid, seed = rng.choice((1, 1, 2)), rng.getrandbits(32)
    try:
        module = Module(text)
        kernels = [name for name in module.kernels if module.code(name)][:2]
    except NotEmulated as error:
        return _accident(error)
    for name in kernels:
        fast, plain = (_launched(module, name, grid, block, seed, compiled) for compiled in (True, False))
        for error in (fast[0], plain[0]):
            if isinstance(error, Exception) and _accident(error):
                return f"{_accident(error)}\n\n{text}"
        difference = _difference(fast, plain, several=grid > 1)
        if difference:
            return f"{difference}; kernel {name}, grid {grid}, block {block}, seed {seed}\n\n{text}"
    return ""


def _accident(error: Exception) -> str:
    """A sentence if our error was raised in place of an unforeseen one, else an empty text."""
    return f"{type(error.__cause__).__name__} behind {error}" if error.__cause__ else ""


Launched = tuple[Counters | Exception, list[bytes]]


def _launched(module: Module, name: str, grid: int, block: int, seed: int, compiled: bool) -> Launched:
    """The result of a launch, and the content of its buffers afterwards."""
    values = np.random.default_rng(seed)
    buffers, arguments = [], []
    for parameter in module.code(name).resources.kernel.parameters:
        argument: Buffer | bytes = values.integers(0, 32, 1).astype(np.uint32).tobytes().ljust(parameter.size, b"\0")
        if parameter.size == 8:
            content = values.integers(0, 256, BYTES).astype(np.uint8)
            argument = Buffer(
                f"buffer{len(buffers)}", content, initialised=bool(values.integers(4)), window=1000 + len(buffers)
            )
            buffers.append(argument)
        arguments.append(argument[: parameter.size] if isinstance(argument, bytes) else argument)
    for variable in module.variables.values():
        variable.data[:] = values.integers(0, 256, len(variable.data))
    try:
        extents = (grid, 1, 1), (block, 1, 1)
        ended = launch(module, name, *extents, arguments, budget=BUDGET, compiled=compiled)
    except (Fault, LaunchError, NotEmulated) as error:
        ended = error
    return ended, [buffer.data.tobytes() for buffer in (*buffers, *module.variables.values())]


def _difference(fast: Launched, plain: Launched, several: bool) -> str:
    """How the two paths disagree.

    several: there are several blocks, so that each path may find another block's fault first
    """
    if isinstance(fast[0], Exception) or isinstance(plain[0], Exception):
        kinds = [_kind(ended) for ended, _ in (fast, plain)]
        both = all(isinstance(ended, Exception) for ended, _ in (fast, plain))
        return "" if kinds[0] == kinds[1] or (several and both) else f"compiled ends in {kinds[0]}, NumPy in {kinds[1]}"
    if fast[1] != plain[1]:
        return "compiled and NumPy write other bytes"
    return "" if fast[0] == plain[0] else f"compiled counts {fast[0]}, NumPy {plain[0]}"


def _kind(ended: Counters | Exception) -> str:
    if isinstance(ended, Fault):
        return ended.kind
    return f"{type(ended).__name__}: {ended}" if isinstance(ended, Exception) else "no fault"


# ---- changes --------------------------------------------------------------------------------------------------------

Mutator = Callable[[str, random.Random, tuple[str, ...]], str]


def _token(change: Callable[[list[str], int, random.Random], None]) -> Mutator:
    """Change the tokens at a place that is not white space."""

    def changed(text: str, rng: random.Random, others: tuple[str, ...]) -> str:
        tokens = _TOKEN.findall(text)
        places = [i for i, token in enumerate(tokens) if not token.isspace()]
        if not places:
            return text
        change(tokens, rng.choice(places), rng)
        return "".join(tokens)

    return changed


def _delete(tokens: list[str], at: int, rng: random.Random) -> None:
    del tokens[at]


def _duplicate(tokens: list[str], at: int, rng: random.Random) -> None:
    tokens[at:at] = [tokens[at], rng.choice((" ", ""))]


def _swap(tokens: list[str], at: int, rng: random.Random) -> None:
    other = rng.randrange(len(tokens))
    tokens[at], tokens[other] = tokens[other], tokens[at]


def _of_the_text(tokens: list[str], at: int, rng: random.Random) -> None:
    tokens[at] = rng.choice(tokens)


def _alike(tokens: list[str], at: int, rng: random.Random) -> None:
    """Another register, mnemonic, number or sign, so that the text probably still parses."""
    first = tokens[at][0]
    alike = [token for token in tokens if token[0] == first or (first.isdigit() and token[0].isdigit())]
    tokens[at] = rng.choice(alike)


def _word(tokens: list[str], at: int, rng: random.Random) -> None:
    tokens[at] = rng.choice(_WORDS)


def _insert(tokens: list[str], at: int, rng: random.Random) -> None:
    tokens.insert(at, rng.choice(_WORDS))


def _number(text: str, rng: random.Random, others: tuple[str, ...]) -> str:
    found = [match.span() for match in re.finditer(r"(?<![\w%$.])\d\w*|(?<=<)\d+|(?<=[a-z])\d+\b", text)]
    if not found:
        return text
    start, end = rng.choice(found)
    return text[:start] + rng.choice(_NUMBERS) + text[end:]


def _part(text: str, rng: random.Random, others: tuple[str, ...]) -> str:
    """Replace or drop one part of a mnemonic."""
    found = [match.span() for match in re.finditer(r"\.[a-z]\w*", text)]
    if not found:
        return text
    start, end = rng.choice(found)
    return text[:start] + rng.choice(("", *(f".{kind}" for kind in _TYPES))) + text[end:]


def _statements(separator: str) -> Mutator:
    """Drop, duplicate or move a line or statement, or insert one from another text."""

    def changed(text: str, rng: random.Random, others: tuple[str, ...]) -> str:
        parts = text.split(separator)
        at, to = rng.randrange(len(parts)), rng.randrange(len(parts))
        match rng.randrange(4):
            case 0:
                del parts[at]
            case 1:
                parts.insert(to, parts[at])
            case 2:
                parts.insert(to, parts.pop(at))
            case 3:
                parts.insert(to, rng.choice(rng.choice(others).split(separator)))
        return separator.join(parts)

    return changed


def _characters(text: str, rng: random.Random, others: tuple[str, ...]) -> str:
    at, size = rng.randrange(len(text) + 1), rng.choice((1, 1, 3, 40))
    return text[:at] + rng.choice(("", chr(rng.randrange(128)), text[at : at + size] * 2)) + text[at + size :]


def _cut(text: str, rng: random.Random, others: tuple[str, ...]) -> str:
    return text[: rng.randrange(len(text) + 1)]


_CHANGES = (
    *map(_token, (_delete, _duplicate, _swap, _of_the_text, _alike, _alike, _alike, _alike, _word, _insert)),
    _number, _number, _part, _part, _part, _statements("\n"), _statements(";"), _statements(";"), _characters, _cut,
)  # fmt: skip
