"""Count the hardware conversions of narrow floats in each instantiation: e4m3 has them from sm_89 on, e2m1 on sm_100a,
where older chips use integer instructions.

The count is static: a loop counts once. It is taken in PTX, and in machine code, too, if there is a disassembler.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.errors import UsageError
from harness.jit.compile import Compiled
from harness.report.tables import markdown

KINDS = ("to e2m1", "from e2m1", "to e4m3", "from e4m3")
NEWEST, OLDER = "sm_100a", "sm_90a"

_PTX = re.compile(r"(?:^|[;{}])\s*(?:@!?%\w+\s+)?cvt\.[\w.]*?(e2m1|e4m3)(?:x\d)?(\.\w+)?\s", re.MULTILINE)
_SASS = re.compile(r"\bF2FP\.[\w.]*\b(E2M1|E4M3)\b[\w.]*\.(PACK|UNPACK)")


@dataclass(frozen=True)
class Counted:
    """One instantiation. ptx, sass: conversions by kind; sass is None where nothing was disassembled"""

    expression: str
    arch: str
    ptx: Counter[str]
    sass: Counter[str] | None

    @property
    def family(self) -> str:
        """The kernel, with its rounding if that is a parameter: such as `per_tensor_encode_tile sr`."""
        rounding = re.search(r"Rounding::(\w+)", self.expression)
        return " ".join([self.expression.partition("<")[0], *([rounding[1]] if rounding else [])])


def count(compiled: Compiled, nvdisasm: str | None = None) -> Counted:
    """Count an instantiation. nvdisasm: NVIDIA's disassembler, for the machine code of the newest architecture"""
    sass = None
    if nvdisasm and compiled.arch == NEWEST:
        sass = in_sass(_disassembled(nvdisasm, Path(compiled.cubin_path)))
    return Counted(compiled.expression, compiled.arch, in_ptx(compiled.ptx), sass)


def in_ptx(text: str) -> Counter[str]:
    """Conversions by kind: a narrow type is the result if another type follows it."""
    return Counter(f"{'to' if source else 'from'} {narrow}" for narrow, source in _PTX.findall(text))


def in_sass(text: str) -> Counter[str]:
    """Conversions by kind, in disassembled machine code."""
    return Counter(f"{'to' if how == 'PACK' else 'from'} {narrow.lower()}" for narrow, how in _SASS.findall(text))


def _disassembled(nvdisasm: str, cubin: Path) -> str:
    done = subprocess.run([nvdisasm, "-c", str(cubin)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"{nvdisasm} cannot read {cubin.name}: {done.stderr.strip() or 'it says nothing'}")
    return done.stdout


def differing(counted: Iterable[Counted]) -> list[Counted]:
    return [each for each in counted if each.sass is not None and each.sass != each.ptx]


def narrowing_differs(counted: Iterable[Counted]) -> list[Counted]:
    """Instantiations whose machine code and PTX count other narrowing conversions; ptxas may drop dead widenings."""
    kinds = ("to e2m1", "to e4m3")
    return [each for each in differing(counted) if any(each.sass[kind] != each.ptx[kind] for kind in kinds)]


def table(counted: Iterable[Counted]) -> pd.DataFrame:
    """A row for each family with conversions: fewest and most of an instantiation for the newest architecture."""
    families: dict[str, list[Counted]] = {}
    for each in counted:
        families.setdefault(each.family, []).append(each)
    rows = []
    for family, members in sorted(families.items()):
        new, old = ([each for each in members if each.arch == arch] for arch in (NEWEST, OLDER))
        if not any(each.ptx for each in members) or not new:
            continue
        row: dict[str, object] = {"kernel": family, "instantiations": len(new)}
        row |= {kind: _range([each.ptx[kind] for each in new]) for kind in KINDS}
        row["e2m1 on sm_90a"] = sum(each.ptx["to e2m1"] + each.ptx["from e2m1"] for each in old)
        disassembled = [each for each in new if each.sass is not None]
        row["machine code"] = f"{len(disassembled) - len(differing(new))}/{len(new)} as PTX" if disassembled else "-"
        rows.append(row)
    return pd.DataFrame(rows)


def _range(numbers: Sequence[int]) -> str:
    return "-".join(map(str, sorted({min(numbers), max(numbers)})))


def rows_of(counted: Iterable[Counted]) -> pd.DataFrame:
    new = sorted((each for each in counted if each.arch == NEWEST), key=lambda each: each.expression)
    return pd.DataFrame([{"instantiation": each.expression} | {kind: each.ptx[kind] for kind in KINDS} for each in new])


def page(command: str, nvrtc: str, counted: Sequence[Counted]) -> str:
    new = [each for each in counted if each.arch == NEWEST]
    none = sum(not each.ptx for each in new)
    disassembled = sum(each.sass is not None for each in new)
    unlike = differing(new)
    names = ", ".join(sorted({each.family for each in unlike})) or "none"
    text = [
        "# Hardware conversions on sm_100a",
        f"Made by `{command}` with NVRTC {nvrtc}: `cvt` instructions of e2m1x2 and e4m3x2 in each of "
        f"{len(new)} instantiations, the fewest and the most of a kernel's; conversions.csv has every one. Each "
        "converts two values, and a loop counts once.",
        f"In machine code each is one `F2FP`: of {disassembled} instantiations that were disassembled, "
        f"{disassembled - len(unlike)} have as many of each kind as their PTX; of the others "
        f"({names}) the assembler dropped decodings whose results nothing reads."
        if disassembled
        else "No machine code was disassembled; `--nvdisasm PATH` counts there, too.",
        markdown(table(counted)),
        "Stochastic rounding (sr) takes its bits from Philox by element, so it rounds with integers; the hardware's "
        "`cvt.rs` would take others. sm_90a has no e2m1. "
        f"{none} instantiations convert nothing: amaxes, sums, swizzles, and what makes values of bits itself.",
    ]
    return "\n\n".join(text) + "\n"
