"""Expected results of every arithmetic mnemonic, from its name alone: scalar functions on bit patterns, by the PTX
manual's words, and where those leave a choice, by what an H200 gave for the operands of `operands.draw`: all 1683
mnemonics that sm_90a has were compared.

`expected(mnemonic)` returns (result type, source types, function of ints); KeyError if this page does not know it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import exact_floats as exact
from exact_floats import FORMATS, Number, decode, encode

Scalar = Callable[..., int]
Expected = tuple[str, tuple[str, ...], Scalar]


def mask(width: int) -> int:
    return (1 << width) - 1


def signed(bits: int, width: int) -> int:
    return bits - (1 << width) if bits >> (width - 1) & 1 else bits


def value(bits: int, kind: str) -> int:
    """An integer of type u8 ... s64 as a number."""
    return signed(bits, int(kind[1:])) if kind[0] == "s" else bits


def truncated(a: int, b: int) -> int:
    """a / b toward zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


# ---- integers -------------------------------------------------------------------------------------------------------

_PLAIN = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a,
    "neg": lambda a: -a,
    "abs": abs,
    "cnot": lambda a: int(a == 0),
    "popc": lambda a: a.bit_count(),
}


def integer(mnemonic: str) -> Expected:
    head, kind = mnemonic.rsplit(".", 1)
    if kind == "pred":
        count = 1 if head == "not" else 2
        return "pred", ("pred",) * count, lambda *a: _PLAIN[head](*a) & 1
    if kind.endswith("16x2"):
        return "b32", ("b32", "b32"), _pairs(head, kind)
    if head.startswith("dp4a"):
        return "u32", ("u32",) * 3, _dot(head.split(".")[1], kind)
    width = int(kind[1:])
    if head in _PLAIN:
        count = _PLAIN[head].__code__.co_argcount if hasattr(_PLAIN[head], "__code__") else (1 if head == "abs" else 2)
        result = "u32" if head == "popc" else kind
        return result, (kind,) * count, lambda *a: _PLAIN[head](*(value(x, kind) for x in a)) & mask(width)
    return _special_integer(head, kind, width)


def _special_integer(head: str, kind: str, width: int) -> Expected:
    def read(bits: int) -> int:
        return value(bits, kind)

    def field(operand: int) -> int:
        return operand & 255 if width == 32 else min(operand, 255)

    wide = f"{kind[0]}{2 * width}"
    table: dict[str, tuple[str, tuple[str, ...], Scalar]] = {
        "mul.hi": (kind, (kind, kind), lambda a, b: read(a) * read(b) >> width),
        "mul.wide": (wide, (kind, kind), lambda a, b: read(a) * read(b)),
        "mad.lo": (kind, (kind,) * 3, lambda a, b, c: a * b + c),
        "mad.hi": (kind, (kind,) * 3, lambda a, b, c: (read(a) * read(b) >> width) + c),
        "mad.wide": (wide, (kind, kind, wide), lambda a, b, c: read(a) * read(b) + c),
        "mul24.lo": (kind, (kind, kind), lambda a, b: (a & mask(24)) * (b & mask(24))),
        "div": (kind, (kind, kind), lambda a, b: truncated(read(a), read(b)) if b else mask(width)),
        "rem": (kind, (kind, kind), lambda a, b: read(a) - read(b) * truncated(read(a), read(b)) if b else mask(width)),
        "shl": (kind, (kind, "u32"), lambda a, n: a << min(n, width)),
        "shr": (kind, (kind, "u32"), lambda a, n: read(a) >> min(n, width)),
        "clz": ("u32", (kind,), lambda a: width - a.bit_length()),
        "brev": (kind, (kind,), lambda a: int(f"{a:0{width}b}"[::-1], 2)),
        "bfind": ("u32", (kind,), lambda a: _leading(read(a))),
        "bfind.shiftamt": ("u32", (kind,), lambda a: width - 1 - _leading(read(a)) if _leading(read(a)) >= 0 else -1),
        "bfe": (kind, (kind, "u32", "u32"), lambda a, p, n: _extract(a, field(p), field(n), width, kind[0] == "s")),
        "bfi": (kind, (kind, kind, "u32", "u32"), lambda a, b, p, n: _insert(a, b, field(p), field(n), width)),
        "shf.l.wrap": ("b32", ("b32", "b32", "u32"), lambda a, b, n: ((b << 32 | a) << (n & 31)) >> 32),
        "shf.r.wrap": ("b32", ("b32", "b32", "u32"), lambda a, b, n: (b << 32 | a) >> (n & 31)),
        "shf.l.clamp": ("b32", ("b32", "b32", "u32"), lambda a, b, n: ((b << 32 | a) << min(n, 32)) >> 32),
        "shf.r.clamp": ("b32", ("b32", "b32", "u32"), lambda a, b, n: (b << 32 | a) >> min(n, 32)),
        "add.sat": (kind, (kind, kind), lambda a, b: _clamp(read(a) + read(b), kind)),
        "sub.sat": (kind, (kind, kind), lambda a, b: _clamp(read(a) - read(b), kind)),
        "min.relu": (kind, (kind, kind), lambda a, b: max(0, min(read(a), read(b)))),
        "max.relu": (kind, (kind, kind), lambda a, b: max(0, read(a), read(b))),
        "prmt": ("b32", ("b32",) * 3, permuted),
        "bmsk.clamp": (kind, (kind, kind), lambda a, b: _ones(min(a, 32), min(b, 32))),
        "bmsk.wrap": (kind, (kind, kind), lambda a, b: _ones(a & 31, b & 31)),
    }
    result, sources, function = table[head]
    return result, sources, lambda *a: function(*a) & mask(int(result[1:]))


def _ones(position: int, length: int) -> int:
    return sum(1 << i for i in range(position, min(position + length, 32)))


# Bytes of (b, a) from the highest byte of the result on, by the lower two bits of the selector: the manual's tables.
_PERMUTED = {
    "f4e": ("3210", "4321", "5432", "6543"), "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"), "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"), "rc16": ("1010", "3232", "1010", "3232"),
}  # fmt: skip


def permuting(mnemonic: str) -> Expected:
    """`prmt.b32.f4e` and the other modes."""
    table = _PERMUTED[mnemonic.rpartition(".")[2]]
    return "b32", ("b32",) * 3, lambda a, b, c: permuted(a, b, int(table[c & 3], 16))


def in_parts(mnemonic: str, mask_of: str = "", first: str = "", second: str = "") -> Expected:
    """`vabsdiff4.u32.s32.u32.add` and its kin. mask_of, first, second: selectors as `b3210`, empty for the default"""
    name, result, a_kind, b_kind, *tail = mnemonic.split(".")
    count = int(name[-1])
    width = 32 // count
    every = {2: ("10", "10", "32"), 4: ("3210", "3210", "7654")}[count]
    given = zip((mask_of, first, second), every, strict=True)
    chosen, *picks = ((selector[1:] or default)[::-1] for selector, default in given)
    operation = {
        "vadd": lambda x, y: x + y, "vsub": lambda x, y: x - y, "vabsdiff": lambda x, y: abs(x - y), "vmin": min,
        "vmax": max, "vavrg": lambda x, y: (x + y + 1) // 2 if x + y >= 0 else (x + y) // 2,
    }[name[:-1]]  # fmt: skip

    def function(a: int, b: int, c: int) -> int:
        total, out = c, 0
        for i in range(count):
            x, y = (
                value((b << 32 | a) >> width * int(pick[i]) & mask(width), f"{kind[0]}{width}")
                for pick, kind in zip(picks, (a_kind, b_kind), strict=True)
            )
            part = operation(x, y)
            part = _clamp(part, f"{result[0]}{width}") if tail == ["sat"] else part
            within = str(i) in chosen
            total += part if within else 0
            out |= (part & mask(width) if within else c >> width * i & mask(width)) << width * i
        return total & mask(32) if tail == ["add"] else out

    return result, (a_kind, b_kind, result), function


def _clamp(number: int, kind: str) -> int:
    width = int(kind[1:])
    low, high = (-(1 << (width - 1)), mask(width - 1)) if kind[0] == "s" else (0, mask(width))
    return max(low, min(high, number))


def _leading(number: int) -> int:
    """Position of the highest bit that differs from the sign, -1 if none does."""
    return (~number if number < 0 else number).bit_length() - 1


def _extract(a: int, position: int, length: int, width: int, is_signed: bool) -> int:
    """Bit by bit, as the manual's loop does."""
    top = width - 1
    sign = 0 if not is_signed or length == 0 else a >> min(position + length - 1, top) & 1
    out = 0
    for i in range(width):
        bit = a >> (position + i) & 1 if i < length and position + i <= top else sign
        out |= bit << i
    return out


def _insert(a: int, b: int, position: int, length: int, width: int) -> int:
    for i in range(length):
        if position + i < width:
            b = b & ~(1 << (position + i)) | (a >> i & 1) << (position + i)
    return b


def permuted(a: int, b: int, selector: int) -> int:
    data = (b << 32 | a).to_bytes(8, "little")
    picks = [selector >> 4 * i & 15 for i in range(4)]
    return int.from_bytes(bytes((0xFF * (data[p & 7] >> 7)) if p & 8 else data[p & 7] for p in picks), "little")


def _pairs(head: str, kind: str) -> Scalar:
    def both(a: int, b: int) -> int:
        halves = [
            _PLAIN[head](value(a >> s & 0xFFFF, kind[:3]), value(b >> s & 0xFFFF, kind[:3])) & 0xFFFF for s in (0, 16)
        ]
        return halves[0] | halves[1] << 16

    return both


def _dot(a_kind: str, b_kind: str) -> Scalar:
    def dot(a: int, b: int, c: int) -> int:
        products = (value(a >> s & 255, f"{a_kind[0]}8") * value(b >> s & 255, f"{b_kind[0]}8") for s in (0, 8, 16, 24))
        return c + sum(products) & mask(32)

    return dot


# ---- floats ---------------------------------------------------------------------------------------------------------

_MODES = ("rn", "rz", "rm", "rp")


def floating(mnemonic: str) -> Expected:
    head, *modifiers, kind = mnemonic.split(".")
    ternary = kind.endswith("/3")
    kind = kind.removesuffix("/3")
    if head == "testp":
        return "pred", (kind,), lambda a: _class(a, modifiers[0], kind)
    single = kind.removesuffix("x2")
    form = FORMATS[single]
    count = {"fma": 3, "mad": 3, "rcp": 1, "sqrt": 1, "abs": 1, "neg": 1}.get(head, 3 if ternary else 2)
    function = _scalar_float(head, modifiers, form)
    if single == kind:
        return kind, (kind,) * count, function

    def packed(*operands: int) -> int:
        low, high = (function(*(a >> s & mask(form.width) for a in operands)) for s in (0, form.width))
        return low | high << form.width

    return kind, (kind,) * count, packed


def _scalar_float(head: str, modifiers: list[str], form: exact.Format) -> Scalar:
    mode = next((m for m in modifiers if m in _MODES), "rn")
    flushes, saturates, relu = "ftz" in modifiers, "sat" in modifiers, "relu" in modifiers

    def run(*operands: int) -> int:
        operands = tuple(flush(a, form) for a in operands) if flushes else operands
        if head == "copysign":
            return operands[0] & form.sign_bit | operands[1] & ~form.sign_bit
        result = _compute(head, [decode(a, form) for a in operands], mode, "NaN" in modifiers)
        if (
            flushes
            and not result.is_nan
            and not result.is_infinite
            and result.magnitude < exact.power_of_two(1 - form.bias)
        ):
            result = Number(result.negative)
        bits = encode(result, form, mode)
        if saturates:
            number = decode(bits, form)
            if number.is_nan or number.negative:
                return 0
            one = encode(exact.of(Fraction(1)), form)
            return one if number.is_infinite or number.value > 1 else bits
        return 0 if relu and bits & form.sign_bit else bits

    return run


def _compute(head: str, numbers: list[Number], mode: str, keeps_nan: bool) -> Number:
    if head in ("min", "max"):
        return exact.extreme(head == "max", keeps_nan, *numbers)
    if head in ("fma", "mad"):
        return exact.add(exact.multiply(numbers[0], numbers[1]), numbers[2], mode)
    return {
        "add": lambda a, b: exact.add(a, b, mode),
        "sub": lambda a, b: exact.add(a, -b, mode),
        "mul": exact.multiply,
        "div": exact.divide,
        "rcp": lambda a: exact.divide(exact.of(Fraction(1)), a),
        "sqrt": exact.square_root,
        "abs": abs,
        "neg": lambda a: -a,
    }[head](*numbers)


def flush(bits: int, form: exact.Format) -> int:
    magnitude = bits & ~form.sign_bit
    return bits & form.sign_bit if magnitude < 1 << form.mantissa else bits


def _class(bits: int, what: str, kind: str) -> int:
    form = FORMATS[kind]
    number, subnormal = decode(bits, form), 0 < bits & ~form.sign_bit < 1 << form.mantissa
    return {
        "finite": not number.is_nan and not number.is_infinite,
        "infinite": number.is_infinite,
        "number": not number.is_nan,
        "notanumber": number.is_nan,
        "normal": not (number.is_nan or number.is_infinite or subnormal),  # zero is normal
        "subnormal": subnormal,
    }[what]


# ---- comparisons ----------------------------------------------------------------------------------------------------

_RELATIONS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_COMBINE = {"and": lambda p, c: p and c, "or": lambda p, c: p or c, "xor": lambda p, c: p != c}


def relation(name: str, kind: str) -> Callable[[int, int], bool]:
    """The comparison `name` of two patterns of type `kind`, which may begin with `ftz.`."""
    name = _UNSIGNED.get(name, name)
    form = FORMATS.get(kind.removeprefix("ftz."))
    if not form:
        return lambda a, b: _RELATIONS[name](value(a, kind), value(b, kind))

    def compare(a: int, b: int) -> bool:
        if kind.startswith("ftz."):
            a, b = flush(a, form), flush(b, form)
        x, y = decode(a, form), decode(b, form)
        unordered = x.is_nan or y.is_nan
        if name in ("num", "nan"):
            return unordered == (name == "nan")
        if unordered:
            return name.endswith("u")
        return _RELATIONS[name[:2]](exact.rank(x)[0], exact.rank(y)[0])

    return compare


def comparison(mnemonic: str) -> Expected:
    _, name, *middle, kind = mnemonic.split(".")
    combine = middle.pop(0) if middle and middle[0] in _COMBINE else ""
    compare = relation(name, ".".join([*middle, kind.removesuffix("x2")]))
    if kind.endswith("x2"):  # without a second result, of the lower halves
        return "pred", (kind, kind), lambda a, b: int(compare(a & mask(16), b & mask(16)))
    if not combine:
        return "pred", (kind, kind), lambda a, b: int(compare(a, b))
    return "pred", (kind, kind, "pred"), lambda a, b, c: int(_COMBINE[combine](compare(a, b), bool(c)))


def setting(mnemonic: str) -> Expected:
    _, name, *middle, result, kind = mnemonic.split(".")
    combine = middle.pop(0) if middle and middle[0] in _COMBINE else ""
    if middle:  # .ftz
        kind = f"ftz.{kind}"
    paired = kind.endswith("x2")
    compare = relation(name, kind.removesuffix("x2"))
    ones = {"f32": 0x3F800000, "f16": 0x3C00, "f16x2": 0x3C00, "bf16": 0x3F80, "bf16x2": 0x3F80}
    yes = ones[result] if result in ones else mask(16 if paired else int(result[1:]))

    def found(a: int, b: int, *c: int) -> int:
        holds = compare(a, b)
        return yes if (_COMBINE[combine](holds, bool(*c)) if combine else holds) else 0

    def both(a: int, b: int, *c: int) -> int:
        return found(a & mask(16), b & mask(16), *c) | found(a >> 16, b >> 16, *c) << 16

    return result, (kind.removeprefix("ftz."),) * 2 + ("pred",) * bool(combine), both if paired else found


# ---- conversions ----------------------------------------------------------------------------------------------------

_INTEGRAL = ("rni", "rzi", "rmi", "rpi")


def conversion(mnemonic: str) -> Expected:
    *modifiers, target, source = mnemonic.split(".")[1:]
    if target.endswith("x2") or source.endswith("x2"):
        return _packed_conversion(modifiers, target, source)
    if target not in FORMATS and source not in FORMATS:
        if "sat" in modifiers:
            return target, (source,), lambda a: _clamp(value(a, source), target) & mask(int(target[1:]))
        return target, (source,), lambda a: value(a, source) & mask(int(target[1:]))
    if target not in FORMATS:
        return target, (source,), lambda a: _to_integer(a, modifiers, target, source)
    if source not in FORMATS:
        mode = modifiers[0]
        return target, (source,), lambda a: encode(exact.of(Fraction(value(a, source))), FORMATS[target], mode)
    return target, (source,), lambda a: _float_to_float(a, modifiers, target, source)


def _to_integer(bits: int, modifiers: list[str], target: str, source: str) -> int:
    form, width = FORMATS[source], int(target[1:])
    bits = flush(bits, form) if "ftz" in modifiers else bits
    number = decode(bits, form)
    if number.is_nan:
        return 1 << (width - 1) if source == "f64" or width == 64 else 0
    if number.is_infinite:
        return _clamp(-(1 << 100) if number.negative else 1 << 100, target) & mask(width)
    return _clamp(int(exact.integral(number, modifiers[0]).value), target) & mask(width)


def _float_to_float(bits: int, modifiers: list[str], target: str, source: str) -> int:
    form, out = FORMATS[source], FORMATS[target]
    bits = flush(bits, form) if "ftz" in modifiers else bits
    number = decode(bits, form)
    if (target, source) == ("f32", "bf16"):
        return bits << 16  # a shift: the payload of a NaN stays
    mode = next((m for m in modifiers if m in _MODES), "rn")
    integral = next((m for m in modifiers if m in _INTEGRAL), None)
    number = exact.integral(number, integral) if integral else number
    if "sat" in modifiers:
        if number.is_nan or number.negative:
            return 0
        number = exact.of(Fraction(1)) if number.is_infinite or number.value > 1 else number
    if "relu" in modifiers and number.negative:
        number = exact.ZERO
    return encode(number, out, mode, "satfinite" in modifiers)


def _packed_conversion(modifiers: list[str], target: str, source: str) -> Expected:
    mode = next((m for m in modifiers if m in _MODES), "rn")
    finite, relu = "satfinite" in modifiers, "relu" in modifiers
    out, form = FORMATS[target.removesuffix("x2")], FORMATS[source.removesuffix("x2")]

    def one(bits: int) -> int:
        number = decode(bits, form)
        number = exact.ZERO if relu and number.negative else number
        return encode(number, out, mode, finite)

    names = {4: "b8", 8: "b16", 16: "b32"}
    result = target if target in ("f16x2", "bf16x2") else names[out.width]
    if source == "f32":
        return result, ("f32", "f32"), lambda high, low: one(high) << out.width | one(low)
    half = mask(form.width)
    return result, (names[form.width],), lambda a: one(a >> form.width) << out.width | one(a & half)


# ---- by name --------------------------------------------------------------------------------------------------------

_FLOAT_TYPES = {"f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "f32x2", "f32/3"}


def expected(mnemonic: str) -> Expected:
    """Result type, source types and function of a mnemonic of the arithmetic tables."""
    head, kind = mnemonic.split(".")[0], mnemonic.split(".")[-1]
    if head == "cvt":
        return conversion(mnemonic)
    if mnemonic.startswith("prmt.b32."):
        return permuting(mnemonic)
    if head[0] == "v":
        return in_parts(mnemonic)
    if head == "setp":
        return comparison(mnemonic)
    if head == "set":
        return setting(mnemonic)
    return floating(mnemonic) if kind in _FLOAT_TYPES else integer(mnemonic)
