"""The instructions that the compiled interpreter knows: mnemonic → opcode and an immediate.

Numbers are in the order of families: 32-bit integers, comparisons, float32, conversions, 64-bit values, then what
touches other lanes or memory. Registers of 8, 16 and 32 bits, and predicates, are zero-extended 32-bit values.
"""

from __future__ import annotations

FAMILY = 64  # opcodes of one family

(
    MOV, AND, OR, XOR, NOT, ADD, SUB, SHL, SHR, SAR, MUL, MULHI, MAD, LOP3, PRMT, PRMT_ANY, MIN_U, MAX_U,
    MIN_S, MAX_S, SELP, NEG, POPC, CLZ, DIV_U, REM_U, DIV_S, REM_S, ABS_X2, MAX_X2, MIN_X2, MUL_F16X2, TRUNCATE,
    SIGN_EXTEND, NOT_PREDICATE, PACK_HALVES, HIGH_HALF,
) = range(37)  # fmt: skip
(
    EQ, NE, LT_U, LE_U, GT_U, GE_U, LT_S, LE_S, GT_S, GE_S,
    FEQ, FNE, FLT, FLE, FGT, FGE, FEQU, FNEU, FLTU, FLEU, FGTU, FGEU, FNUM, FNAN,
) = range(FAMILY, FAMILY + 24)  # fmt: skip
FADD, FSUB, FMUL, FMA, FADD_RZ, FMUL_RZ, FMAX, FMIN, FABS, FNEG, FDIV, FRCP, FSQRT, FMA_RZ, COPYSIGN = range(
    2 * FAMILY, 2 * FAMILY + 15
)
(
    F32_F16, F32_BF16, F16_F32, BF16_F32, F16X2_F32, F16X2_F32_RZ, BF16X2_F32, BF16X2_F32_RZ, E4M3X2_F32, E2M1X2_F32,
    F16X2_E4M3X2, F16X2_E2M1X2, F32_S32, F32_U32,
) = range(3 * FAMILY, 3 * FAMILY + 14)  # fmt: skip
(
    MOV64, AND64, OR64, XOR64, NOT64, ADD64, SUB64, SHL64, SHR64, SAR64, MUL64, MAD64, NEG64, MIN_U64, MAX_U64, SELP64,
    DADD, DSUB, DMUL, MULWIDE_U, MULWIDE_S, MADWIDE_U, MADWIDE_S, WIDEN_U, WIDEN_S, NARROW, PACK, HIGH,
    EQ64, NE64, LT_U64, LE_U64, GT_U64, GE_U64, LT_S64, LE_S64, GT_S64, GE_S64, F64_F32, F32_F64,
) = range(4 * FAMILY, 4 * FAMILY + 40)  # fmt: skip
SHFL_BFLY, SHFL_UP, SHFL_DOWN, SHFL_IDX, BALLOT, VOTE_ANY, VOTE_ALL, REDUX_MAX, REDUX_MIN, REDUX_ADD, WARP_SYNC = range(
    5 * FAMILY, 5 * FAMILY + 11
)
MMA_F16, MMA_BF16, MMA_F16_HOPPER = range(6 * FAMILY, 6 * FAMILY + 3)
LOAD_PARAMETER, LOAD_GLOBAL, STORE_GLOBAL, LOAD_SHARED, STORE_SHARED, LOAD_CONSTANT = range(7 * FAMILY, 7 * FAMILY + 6)

LOADS = {"global": LOAD_GLOBAL, "shared": LOAD_SHARED}
STORES = {"global": STORE_GLOBAL, "shared": STORE_SHARED}
SHUFFLES = {"bfly": SHFL_BFLY, "up": SHFL_UP, "down": SHFL_DOWN, "idx": SHFL_IDX}
VOTES = {"ballot": BALLOT, "any": VOTE_ANY, "all": VOTE_ALL}
REDUCTIONS = {"max.u32": REDUX_MAX, "min.u32": REDUX_MIN, "add.u32": REDUX_ADD, "add.s32": REDUX_ADD}
_RELATIONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _table() -> dict[str, tuple[int, int]]:
    table: dict[str, tuple[int, int]] = {}

    def define(code: int, *names: str, immediate: int = 0) -> None:
        table.update(dict.fromkeys(names, (code, immediate)))

    for width in ("16", "32", "64"):
        wide = width == "64"
        define(MOV64 if wide else MOV, *(f"mov.{kind}{width}" for kind in "busf" if kind + width != "f16"))
        define(SELP64 if wide else SELP, *(f"selp.{kind}{width}" for kind in "busf"))
        for name, narrow, large in (("and", AND, AND64), ("or", OR, OR64), ("xor", XOR, XOR64)):
            define(large if wide else narrow, f"{name}.b{width}")
        for i, name in enumerate(_RELATIONS[:2]):
            define((EQ64 if wide else EQ) + i, *(f"setp.{name}.{kind}{width}" for kind in "bus"))
        for i, name in enumerate(_RELATIONS[2:]):
            define((LT_U64 if wide else LT_U) + i, f"setp.{name}.u{width}")
            if width != "16":
                define((LT_S64 if wide else LT_S) + i, f"setp.{name}.s{width}")
    define(MOV, "mov.pred")
    define(NOT_PREDICATE, "not.pred")
    define(AND, "and.pred")
    define(OR, "or.pred")
    define(XOR, "xor.pred")
    for sign in "us":
        define(ADD, f"add.{sign}32")
        define(SUB, f"sub.{sign}32")
        define(MUL, f"mul.lo.{sign}32")
        define(MAD, f"mad.lo.{sign}32")
        define(ADD64, f"add.{sign}64")
        define(SUB64, f"sub.{sign}64")
        define(MUL64, f"mul.lo.{sign}64")
        define(MAD64, f"mad.lo.{sign}64")
        define(MULWIDE_S if sign == "s" else MULWIDE_U, f"mul.wide.{sign}32")
        define(MADWIDE_S if sign == "s" else MADWIDE_U, f"mad.wide.{sign}32")
    define(MULHI, "mul.hi.u32")
    define(NOT, "not.b32")
    define(NOT64, "not.b64")
    define(SHL, "shl.b32")
    define(SHR, "shr.b32", "shr.u32", "shr.u16", "shr.b16")
    define(SAR, "shr.s32")
    define(SHL64, "shl.b64")
    define(SHR64, "shr.b64", "shr.u64")
    define(SAR64, "shr.s64")
    define(MIN_U, "min.u32")
    define(MAX_U, "max.u32")
    define(MIN_S, "min.s32")
    define(MAX_S, "max.s32")
    define(NEG, "neg.s32")
    define(NEG64, "neg.s64")
    define(POPC, "popc.b32")
    define(CLZ, "clz.b32")
    define(DIV_U, "div.u32")
    define(REM_U, "rem.u32")
    define(DIV_S, "div.s32")
    define(REM_S, "rem.s32")
    define(MIN_U64, "min.u64")
    define(MAX_U64, "max.u64")
    for kind, infinity in (("f16x2", 0x7C00), ("bf16x2", 0x7F80)):
        define(ABS_X2, f"abs.{kind}", immediate=infinity)
        define(MAX_X2, f"max.{kind}", immediate=infinity)
        define(MIN_X2, f"min.{kind}", immediate=infinity)
    define(MUL, "mul.wide.u16")
    define(TRUNCATE, "cvt.u16.u32", "cvt.s16.s32", "cvt.u16.s32", immediate=0xFFFF)
    define(TRUNCATE, "cvt.u8.u32", "cvt.u8.u16", immediate=0xFF)
    define(SIGN_EXTEND, "cvt.s32.s16", immediate=16)
    define(SIGN_EXTEND, "cvt.s32.s8", immediate=8)
    define(MUL_F16X2, "mul.f16x2", "mul.rn.f16x2")
    unordered = [f"{name}u" for name in _RELATIONS]
    for i, name in enumerate((*_RELATIONS, *unordered, "num", "nan")):
        define(FEQ + i, f"setp.{name}.f32")
    for code, name in ((FADD, "add"), (FSUB, "sub"), (FMUL, "mul")):
        define(code, f"{name}.f32", f"{name}.rn.f32")
    define(FADD_RZ, "add.rz.f32")
    define(FMUL_RZ, "mul.rz.f32")
    define(FMA, "fma.rn.f32", "mad.rn.f32")
    define(FMA_RZ, "fma.rz.f32")
    define(FMAX, "max.f32")
    define(FMIN, "min.f32")
    define(FABS, "abs.f32")
    define(FNEG, "neg.f32")
    define(FDIV, "div.rn.f32")
    define(FRCP, "rcp.rn.f32")
    define(FSQRT, "sqrt.rn.f32")
    define(COPYSIGN, "copysign.f32")
    define(F32_F16, "cvt.f32.f16")
    define(F32_BF16, "cvt.f32.bf16")
    define(F16_F32, "cvt.rn.f16.f32")
    define(BF16_F32, "cvt.rn.bf16.f32")
    define(F16X2_F32, "cvt.rn.f16x2.f32")
    define(F16X2_F32_RZ, "cvt.rz.f16x2.f32")
    define(BF16X2_F32, "cvt.rn.bf16x2.f32")
    define(BF16X2_F32_RZ, "cvt.rz.bf16x2.f32")
    define(E4M3X2_F32, "cvt.rn.satfinite.e4m3x2.f32")
    define(E2M1X2_F32, "cvt.rn.satfinite.e2m1x2.f32")
    define(F16X2_E4M3X2, "cvt.rn.f16x2.e4m3x2")
    define(F16X2_E2M1X2, "cvt.rn.f16x2.e2m1x2")
    define(F32_S32, "cvt.rn.f32.s32")
    define(F32_U32, "cvt.rn.f32.u32")
    define(MOV, "cvt.u32.u16", "cvt.u32.u8", "cvt.s32.u16", "cvt.u16.u8", "cvt.u32.u32", "cvt.s32.s32")
    define(WIDEN_U, "cvt.u64.u32", "cvt.s64.u32", "cvt.u64.u16")
    define(WIDEN_S, "cvt.s64.s32", "cvt.u64.s32")
    define(NARROW, "cvt.u32.u64", "cvt.s32.s64", "cvt.u32.s64", "cvt.s32.u64")
    for code, name in ((DADD, "add"), (DSUB, "sub"), (DMUL, "mul")):
        define(code, f"{name}.f64", f"{name}.rn.f64")
    define(F64_F32, "cvt.f64.f32")
    define(F32_F64, "cvt.rn.f32.f64")
    return table


OPCODES = _table()
