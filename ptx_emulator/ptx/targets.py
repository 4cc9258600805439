"""Instructions that a target lacks, from the PTX ISA's "Target ISA Notes", checked against ptxas 13.0 (sm_107a: 13.5).

Only what the emulator executes is listed, and nothing that every target since sm_75 has. What is not listed counts as
there, so a right kernel is never refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from ptx_emulator.ptx.syntax import Instruction, Kernel, Name


class Target(NamedTuple):
    """`sm_103a`. family: 9, 10, 11 or 12, ...; kind: `a` (this one alone), `f` (its family) or empty"""

    number: int
    family: int
    kind: str


class Need(NamedTuple):
    """words: what it takes, for a person; met: by a target"""

    words: str
    met: Callable[[Target], bool]


def _from(number: int) -> Need:
    return Need(f"sm_{number} or newer", lambda target: target.number >= number)


def _special(words: str, *families: int, hopper: bool = False) -> Need:
    """The targets with `a` or `f` of some families. hopper: sm_90a, too"""
    return Need(
        words, lambda target: (bool(target.kind) and target.family in families) or (hopper and target == _HOPPER)
    )


def _alone(*names: str) -> Need:
    """Only these targets, whatever their families."""
    return Need(" or ".join(names), lambda target: target in map(parsed, names))


_NAME = re.compile(r"sm_(\d+)([af]?)")
_RENAMED = {101: 110}  # sm_101 of PTX 8.6 is sm_110 since 9.0
_HOPPER = Target(90, 9, "a")


@cache
def parsed(name: str) -> Target | None:
    """The target of this name; None for a name that is none."""
    found = _NAME.fullmatch(name)
    if not found:
        return None
    number = _RENAMED.get(int(found[1]), int(found[1]))
    return Target(number, number // 10, found[2])


_BLACKWELL = _special("sm_100a, sm_110a or sm_120a, or newer of their families", 10, 11, 12)
_HOPPER_AND_BLACKWELL = _special("sm_90a, sm_100a, sm_110a or sm_120a, or newer of their families", 10, 11, 12,
                                 hopper=True)  # fmt: skip
_CLUSTERS = _from(90)
_TENSOR_MEMORY = _special("sm_100a or sm_110a, or newer of their families", 10, 11)

_RUBIN = Need(
    "sm_107a, or newer of its family", lambda target: bool(target.kind) and target.family == 10 and target.number >= 107
)

# A pattern at the start of a mnemonic, and what it needs. Behind "/" stands the number of operands.
_NEEDS = (
    # matrices
    (r"wgmma\.", _alone("sm_90a")),
    (r"tcgen05\.mma\..*\.scale_vec::", _alone("sm_100a", "sm_103a", "sm_110a")),
    (r"tcgen05\.", _TENSOR_MEMORY),
    (r"mma\.sync\.aligned\.(m16n8k16\.|m16n8k8\..*bf16)", _from(80)),
    (r"wmma\..*\.bf16", _from(80)),
    (r"stmatrix\.", _from(90)),
    # conversions
    (r"cvt\.rs\.", _alone("sm_100a", "sm_103a")),
    (r"cvt\..*(e2m1|e2m3|e3m2|ue8m0)x", _BLACKWELL),
    (r"cvt\..*ue5m3x2", _RUBIN),
    (r"cvt\..*(e4m3|e5m2)x2", _from(89)),
    (r"cvt\.(rn|rz)\.(relu\.)?(satfinite\.)?bf16(x2)?\.f32/|cvt\.f32\.bf16/", _from(80)),
    (r"cvt\.(?!(rn|rz)\.(relu\.)?(satfinite\.)?bf16(x2)?\.f32/|f32\.bf16/|.*ue8m0x2)[\w.]*\bbf16", _from(90)),
    (r"cvt\.r[nz]\.(relu\.[\w.]*f16|[\w.]*f16x2)\.f32", _from(80)),
    # arithmetic
    (r"(add|sub|mul|fma)\.[\w.]*f32x2", _from(100)),
    (r"(add|sub|fma)\.[\w.]*f32\.b?f16/", _from(100)),
    (r"(min|max)\.[\w.]*f32/4", _from(100)),
    (r"(min|max|add)\.[\w.]*[su]16x2|(min|max)\.relu\.s32", _from(90)),
    (r"(min|max)\.[\w.]*xorsign\.abs\.", _from(86)),
    (r"(min|max)\.([\w.]*NaN\.f32|[\w.]*\bb?f16)", _from(80)),
    (r"(add|sub|mul)\.[\w.]*bf16|(tanh|ex2)\.[\w.]*bf16|setp?\.[\w.]*bf16", _from(90)),
    (r"(abs|neg)\.bf16|fma\.[\w.]*(bf16|relu\.b?f16)", _from(80)),
    # warps
    (r"redux\.sync\.(min|max)\.[\w.]*f32", _special("sm_100a, or newer of its family", 10)),
    (r"redux\.", _from(80)),
    (r"elect\.", _from(90)),
    (r"setmaxnreg\.", _HOPPER_AND_BLACKWELL),
    # memory
    (r"(ld|st)\.[\w.:]*(v8\.\w32|v4\.\w64)/", _from(100)),
    (r"(atom|red)\.[\w.:]*(add\.noftz\.bf16|b128|\bv[248]\b)", _from(90)),
    (r"(ld|st|atom|red)\.[\w.:]*L2::cache_hint|createpolicy\.", _from(80)),
    (r"(ld|st|atom|red|fence|membar|mapa|mbarrier)\.[\w.:]*(shared::cluster|\bcluster\b)", _from(90)),
    # copies and barriers
    (r"cp\.(async|reduce\.async)\.bulk|(st|red)\.async\.|griddepcontrol\.", _from(90)),
    (r"clusterlaunchcontrol\.[\w.:]*multicast", _BLACKWELL),
    (r"clusterlaunchcontrol\.", _from(100)),
    (r"mapa\.|getctarank\.|barrier\.cluster\.", _CLUSTERS),
    (r"cp\.async\.|applypriority\.", _from(80)),
    (r"fence\.(proxy\.async|proxy\.tensormap|mbarrier_init)|tensormap\.cp_fenceproxy", _from(90)),
    (r"tensormap\.replace\.[\w.]*swizzle_atomicity", _BLACKWELL),
    (r"tensormap\.replace\.", _HOPPER_AND_BLACKWELL),
    (r"mbarrier\.(try_wait|complete_tx|[\w.]*expect_tx)|mbarrier\.arrive(?![\w.:]*noComplete)[\w.:]*/3", _from(90)),
    (r"mbarrier\.", _from(80)),
)  # fmt: skip
_CLUSTER_REGISTER = re.compile(r"%(n?clusterid|cluster_n?cta(id|rank)|is_explicit_cluster)\b")


@cache
def _missed(mnemonic: str, operands: int, target: Target) -> str:
    form = f"{mnemonic}/{operands}"
    needs = (need for pattern, need in _NEEDS if re.match(pattern, form))
    return next((need.words for need in needs if not need.met(target)), "")


def lacking(kernel: Kernel, target: str) -> str:
    """A sentence on the first thing in a kernel that its target, `sm_90a`, lacks; empty if there is none."""
    known = parsed(target)
    if known is None:
        return ""
    but = f", and this is compiled for {target}"
    if kernel.cluster and not _CLUSTERS.met(known):
        return f".reqnctapercluster of {kernel.name} needs {_CLUSTERS.words}{but}"
    for instruction in kernel.instructions:
        missed = missed_by(instruction, known)
        if missed:
            return f"{instruction.mnemonic} at {instruction.location} needs {missed}{but}"
    return ""


def missed_by(instruction: Instruction, target: Target) -> str:
    """The architecture that an instruction needs and the target is not, in words; empty if the target has it."""
    missed = _missed(instruction.mnemonic, len(instruction.operands), target)
    if missed or _CLUSTERS.met(target):
        return missed
    names = (operand.text for operand in instruction.operands if isinstance(operand, Name))
    return _CLUSTERS.words if any(map(_CLUSTER_REGISTER.match, names)) else ""
