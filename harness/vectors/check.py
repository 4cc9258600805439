#!/usr/bin/env python3
"""Compare what an implementation wrote with a vector of this folder. Needs Python 3.10 alone.

    python check.py SET VECTOR ANSWER... [--convention NAME]... [--only FIELD]...

SET      the folder that index.json lies in
VECTOR   a name of the index, or the id of its case
ANSWER   a .safetensors with the fields by their names, or FIELD=FILE for one of them, a .npy, or its bytes alone

Exits with 0 if every byte is right, 1 if one is not, 64 if that cannot be said: nothing that is compared is never 0.
Written from the description in index.json; check.cpp says the same in C++.
"""

import argparse
import ast
import hashlib
import json
import math
import os
import re
import struct
import sys
from pathlib import Path

FORMAT = "nvfp4-vectors 1"
EQUAL, DIFFERENT, REFUSED = 0, 1, 64
ITEMSIZES = {"U8": 1, "F8_E4M3": 1, "F16": 2, "BF16": 2, "F32": 4, "I64": 8}
NPY = {
    "U8": ("|u1",), "F16": ("<f2",), "BF16": ("<u2", "<V2", "|V2"), "F32": ("<f4",), "I64": ("<i8",),
}  # fmt: skip
MOST_BYTES = 1 << 30  # limit for a file
MOST_HEADER = 1 << 24
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
KINDS = ("either", "skip", "zero", "nan")


class Refused(Exception):
    """One sentence about what cannot be compared."""


# Files


def read(path):
    """The bytes of a regular file."""
    try:
        if not Path(path).is_file():
            raise Refused(f"{path} is not a file")
        size = Path(path).stat().st_size
        if size > MOST_BYTES:
            raise Refused(f"{path} has {size} bytes; a file of more than {MOST_BYTES} is not read")
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise Refused(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def parse(content, path):
    """JSON without names that stand twice, and without NaN."""

    def once(pairs):
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError("a name stands twice")
        return dict(pairs)

    def constant(name):
        raise ValueError(f"{name} is no JSON")

    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=once, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path} has a header that is not JSON: {type(error).__name__}") from None


def whole(value, least=0):
    return type(value) is int and least <= value < 1 << 62


def extents(value):
    return isinstance(value, list) and len(value) <= 8 and all(whole(each) for each in value)


def safetensors(path):
    """Name → (dtype, shape, bytes). Every byte behind the header belongs to one tensor."""
    content = read(path)
    if len(content) < 8:
        raise Refused(f"{path} is cut off: it has {len(content)} bytes, and a .safetensors begins with 8")
    size = struct.unpack("<Q", content[:8])[0]
    if size > MOST_HEADER or size > len(content) - 8:
        raise Refused(f"{path} says that its header has {size} bytes, and {len(content) - 8} follow")
    header, data = parse(content[8 : 8 + size], path), content[8 + size :]
    if not isinstance(header, dict):
        raise Refused(f"{path} has a header that names no tensors")
    found, spans = {}, []
    for name, about in header.items():
        if name != "__metadata__":
            start, end = span(path, name, about, len(data))
            spans.append((start, end))
            found[name] = about["dtype"], about["shape"], data[start:end]
    end = 0
    for start, stop in sorted(spans):
        if start != end:
            raise Refused(f"{path} has tensors that overlap, or bytes between them, at {end} of {len(data)}")
        end = stop
    if end != len(data):
        raise Refused(f"{path} has {len(data)} bytes of tensors, and its header names {end}")
    return found


def span(path, name, about, size):
    """Where a tensor's bytes lie."""
    shown = ascii(name)[:80]
    if not isinstance(about, dict) or about.get("dtype") not in [*ITEMSIZES] or not extents(about.get("shape")):
        raise Refused(f"{path}: {shown} has no dtype and shape that this knows; dtypes are {', '.join(ITEMSIZES)}")
    offsets = about.get("data_offsets")
    if not extents(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= size:
        raise Refused(f"{path}: {shown} does not lie within the {size} bytes of the file's tensors")
    if math.prod(about["shape"]) * ITEMSIZES[about["dtype"]] != offsets[1] - offsets[0]:
        raise Refused(f"{path}: {shown} has {offsets[1] - offsets[0]} bytes, which are not those of its shape")
    return offsets


def npy(path):
    """(descr, shape, bytes) of a .npy file, in C order."""
    content = read(path)
    if content[:6] != b"\x93NUMPY" or len(content) < 12 or content[6] not in (1, 2, 3):
        raise Refused(f"{path} is not a .npy file")
    width = 2 if content[6] == 1 else 4
    size, start = int.from_bytes(content[8 : 8 + width], "little"), 8 + width
    if size > min(MOST_HEADER, len(content) - start):
        raise Refused(f"{path} says that its header has {size} bytes, and {len(content) - start} follow")
    text = content[start : start + size].decode("latin-1").strip()
    form = r"\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': (\([\d, ]*\)),? *\}"
    fits = re.fullmatch(form, text)
    try:
        shape = list(ast.literal_eval(fits[3])) if fits else None
    except (ValueError, SyntaxError, TypeError):
        shape = None
    if not extents(shape) or fits[2] == "True":
        raise Refused(f"{path} has a header that this does not know; it must be one array in C order")
    return fits[1], shape, content[start + size :]


# The set


def load(folder, wanted):
    """(name, what the index says, tensors of its file) of a vector, and the conventions that there are."""
    path = Path(folder) / "index.json"
    index = parse(read(path), path)
    if not isinstance(index, dict) or index.get("format") != FORMAT or not isinstance(index.get("vectors"), dict):
        raise Refused(f"{path} is no index of {FORMAT}")
    vectors = index["vectors"]
    names = [name for name, about in vectors.items() if wanted == name or about.get("id") == wanted]
    if not names:
        raise Refused(f"{path} has no vector {ascii(wanted)}; it has {len(vectors)}, as {next(iter(vectors), 'none')}")
    about, conventions = vectors[names[0]], index.get("conventions")
    file = about.get("file")
    if not isinstance(file, str) or not re.fullmatch(r"[\w-]+\.safetensors", file, re.ASCII):
        raise Refused(f"{path} names no file of the vector")
    file = Path(folder) / file
    if hashlib.sha256(read(file)).hexdigest() != about.get("digest"):
        raise Refused(f"{file} is not the file of which {path} has the digest; write the set anew")
    if not isinstance(about.get("fields"), dict) or not isinstance(conventions, dict):
        raise Refused(f"{path} has no fields of the vector, or no conventions")
    for each in (names[0], *about["fields"], *conventions):
        if not re.fullmatch(r"[\w-]+", each, re.ASCII):
            raise Refused(f"{path} has the name {ascii(each)[:80]}; names are letters, digits, _ and -")
    return names[0], about, safetensors(file), conventions


class Field:
    """The expected bytes of one field: the lowest and highest bytes, and what the conventions allow."""

    def __init__(self, name, about, tensors, conventions):
        self.name, self.holds, self.tensors = name, about.get("holds"), about.get("tensors", [])
        bounded = f"lowest.{name}" in tensors
        self.dtype, self.shape = about.get("dtype"), about.get("shape")
        if self.dtype not in NPY or not extents(self.shape):
            raise Refused(f"the index has no dtype and shape of {name}")
        self.size = ITEMSIZES[self.dtype]
        self.low, self.high = (
            self._array(tensors, f"{end}.{name}")
            for end in (("lowest", "highest") if bounded else ("expected", "expected"))
        )
        self.slack = about.get("slack", 0)
        self.either, self.skip, self.zero, self.nan = [], bytes(len(self.low)), False, False
        for convention in conventions:
            self._allow(about.get("conventions", {}).get(convention), tensors)

    def _array(self, tensors, name):
        if name not in tensors or tensors[name][:2] != (self.dtype, self.shape):
            raise Refused(f"the set has no {name} of the dtype and shape that its index says")
        return tensors[name][2]

    def _allow(self, about, tensors):
        kind = about.get("kind") if about else "none"
        if about and kind not in KINDS:
            raise Refused(f"the index has a convention of {self.name} of a kind that this does not know")
        self.zero, self.nan = self.zero or kind == "zero", self.nan or kind == "nan"
        if kind in ("either", "skip"):
            if self.size > 1:
                raise Refused(f"the index has a convention of bytes for {self.name}, whose entries have {self.size}")
            array = self._array(tensors, about.get("array"))
            if kind == "either":
                self.either.append(array)
            else:
                self.skip = bytes(one | other for one, other in zip(self.skip, array, strict=True))

    def compared(self):
        """Bytes of which at least a bit is compared."""
        return sum(bits != 0xFF for bits in self.skip)

    def wrong(self, answer):
        """Indices of the entries that no convention allows."""
        right = self._byte if self.size == 1 else self._number
        size = self.size
        return [
            at
            for at in range(len(self.low) // size)
            if self.low[at * size : at * size + size] != answer[at * size : at * size + size] and not right(at, answer)
        ]

    def _byte(self, at, answer):
        value, skip = answer[at], self.skip[at]
        allowed = [self.low[at], *(array[at] for array in self.either)]
        if self.holds != "e2m1x2":
            return any(self._same_scale(value, one, skip) for one in allowed)
        return all(
            any(self._same_code(value >> shift & 15, one >> shift & 15, skip >> shift & 15) for one in allowed)
            for shift in (0, 4)
        )

    def _same_code(self, one, other, skip):
        return not (one ^ other) & ~skip or (self.zero and not (one | other) & 7)

    def _same_scale(self, one, other, skip):
        alike = self.zero and not (one | other) & 0x7F
        nan = self.nan and is_nan_byte(one, self.holds) and is_nan_byte(other, self.holds)
        return not (one ^ other) & ~skip or alike or nan

    def _number(self, at, answer):
        place = slice(at * self.size, at * self.size + self.size)
        given, low, high = (int.from_bytes(part[place], "little") for part in (answer, self.low, self.high))
        bits = 8 * self.size
        sign = 1 << (bits - 1)
        allowed = [given]
        if self.zero and given & ~sign == 0:
            allowed.append(given ^ sign)
        if self.nan and is_nan(given, self.dtype):
            allowed.append(sign - 1)
        return any(order(low, sign) <= order(each, sign) <= order(high, sign) for each in allowed)

    def describe(self, at, answer):
        """Where the first wrong entry is, and what it is and must be."""
        place = slice(at * self.size, at * self.size + self.size)
        given, low, high = (int.from_bytes(part[place], "little") for part in (answer, self.low, self.high))
        width = 2 * self.size
        where = f"{self.name} {coordinate(at, self.shape)}"
        if self.tensors:
            where += self._of_tensor(at)
        if self.holds == "e2m1x2":
            shift = 0 if not self._half(at, answer, 0) else 4
            one, other = given >> shift & 15, low >> shift & 15
            half = "high" if shift else "low"
            return (
                f"{where}: byte 0x{given:02x}, must be 0x{low:02x}; its {half} code is {one} ({code(one)}), "
                f"must be {other} ({code(other)})"
            )
        shown = [f"0x{each:0{width}x} ({decode(each, self.dtype, self.holds)})" for each in (given, low, high)]
        if low == high:
            return f"{where}: {shown[0]}, must be {shown[1]}"
        return f"{where}: {shown[0]}, must be from {shown[1]} to {shown[2]}"

    def _half(self, at, answer, shift):
        allowed = [self.low[at], *(array[at] for array in self.either)]
        skip = self.skip[at] >> shift & 15
        return any(self._same_code(answer[at] >> shift & 15, one >> shift & 15, skip) for one in allowed)

    def _of_tensor(self, at):
        for number, about in enumerate(self.tensors):
            size = math.prod(about["shape"])
            if at < size:
                return f", tensor {number} {coordinate(at, about['shape'])}"
            at -= size
        return ""


# Numbers


def order(bits, sign):
    """An integer that grows with the number: below zero, the bits of a float grow as it falls."""
    return bits if bits < sign else sign - 1 - bits


def is_nan(bits, dtype):
    infinity = {"F16": 0x7C00, "BF16": 0x7F80, "F32": 0x7F800000}.get(dtype)
    return infinity is not None and bits & ((1 << 8 * ITEMSIZES[dtype] - 1) - 1) > infinity


def is_nan_byte(bits, holds):
    """e5m2 is the upper half of a float16."""
    return is_nan(bits << 8, "F16") if holds == "e5m2" else bits & 0x7F == 0x7F


def decode(bits, dtype, holds):
    """A number as text."""
    if dtype == "U8":
        return scale(bits, holds)
    if dtype == "I64":
        return str(bits)
    if is_nan(bits, dtype):
        return "nan"
    if dtype == "F16":
        return f"{struct.unpack('<e', struct.pack('<H', bits))[0]:.9g}"
    return f"{struct.unpack('<f', struct.pack('<I', bits << 16 if dtype == 'BF16' else bits))[0]:.9g}"


def scale(bits, holds):
    """A byte of e4m3, or of another format of which the index says that it is."""
    if holds == "e5m2":
        return decode(bits << 8, "F16", holds)
    if holds == "e8m0":
        return "nan" if bits == 0xFF else f"{2.0 ** (bits - 127):.9g}"
    if bits == 0xFF or (bits == 0x7F and holds != "ue5m3"):
        return "nan"
    exponent, mantissa, bias = (bits >> 3, bits & 7, 15) if holds == "ue5m3" else (bits >> 3 & 15, bits & 7, 7)
    value = math.ldexp(mantissa + 8 * (exponent > 0), max(exponent, 1) - bias - 3)
    return f"{-value if bits & 0x80 and holds != 'ue5m3' else value:.9g}"


def code(bits):
    return f"{-E2M1[bits & 7] if bits & 8 else E2M1[bits & 7]:.9g}"


def coordinate(at, shape):
    found = []
    for extent in reversed(shape):
        found.append(str(at % extent))
        at //= extent
    return f"[{', '.join(reversed(found))}]"


# Answers


def answers(words, names):
    """Field → (path, dtype, shape, bytes) of what was written; dtype and shape are None where a file has none."""
    found = {}
    for word in words:
        name, equals, path = word.partition("=")
        if equals and name in names:
            given = {name: (path, *(npy(path) if path.endswith(".npy") else (None, None, read(path))))}
        else:
            given = {name: (word, *tensor) for name, tensor in safetensors(word).items()}
        for name, tensor in given.items():
            if name not in names:
                raise Refused(f"{tensor[0]} has a tensor {ascii(name)[:80]}; the fields are {', '.join(names)}")
            if name in found:
                raise Refused(f"{name} is given twice")
            found[name] = tensor
    return found


def answer_of(field, given):
    """The bytes to compare, and how many follow that lie in the slack, of an answer of the field's dtype and size."""
    path, dtype, shape, content = given
    known = {field.dtype, "F8_E4M3"} if field.holds == "e4m3" else {field.dtype}
    known |= set(NPY[field.dtype])
    if dtype is not None and dtype not in known:
        raise Refused(f"{path}: {field.name} is {ascii(dtype)}; it must be {field.dtype}")
    slack = field.slack * field.size
    total = len(field.low)
    flat = [(total + slack) // field.size]
    if shape is not None and shape != field.shape and (not slack or shape != flat):
        raise Refused(f"{path}: {field.name} has the shape {shape}; it must be {field.shape}")
    if len(content) != total and (not slack or len(content) != total + slack):
        raise Refused(f"{path}: {field.name} has {len(content)} bytes; it must have {total}")
    return content[:total], len(content) - total


def compare(name, fields, given):
    """Print a line for each field that differs, or how much is equal; EQUAL or DIFFERENT."""
    read_in = [(field, *answer_of(field, given[field.name])) for field in fields]
    compared = sum(field.compared() for field in fields)
    if not compared:
        raise Refused(f"{name}: nothing is compared, because the fields have no bytes, or conventions skip all of them")
    wrong = [(field, answer, field.wrong(answer)) for field, answer, _ in read_in]
    for field, answer, places in wrong:
        if places:
            print(f"different: {field.describe(places[0], answer)}; {len(places)} entries differ")
    changed = sum(
        one != other and bits != 0xFF
        for field, answer, _ in read_in
        for one, other, bits in zip(field.low, answer, field.skip, strict=True)
    )
    slack = sum(rest for *_, rest in read_in)
    if any(places for *_, places in wrong):
        return DIFFERENT
    print(f"equal: {name}, {compared} bytes compared in {', '.join(field.name for field in fields)}")
    if changed:
        print(
            f"accepted: {changed} of these bytes are not the expected ones, within bounds or by the conventions named"
        )
    if slack:
        print(f"not compared: {slack} bytes of slack")
    return EQUAL


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refused(f"{message}; usage: check.py SET VECTOR ANSWER... [--convention NAME]... [--only FIELD]...")


def main(words):
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("folder", metavar="SET")
    parser.add_argument("vector", metavar="VECTOR")
    parser.add_argument("answers", metavar="ANSWER", nargs="+")
    parser.add_argument("--convention", metavar="NAME", action="append", default=[])
    parser.add_argument("--only", metavar="FIELD", action="append", default=[])
    given = parser.parse_args(words)
    name, about, tensors, conventions = load(given.folder, given.vector)
    for kind, chosen, known in (("convention", given.convention, conventions), ("field", given.only, about["fields"])):
        for each in chosen:
            if each not in known:
                raise Refused(f"there is no {kind} {ascii(each)}; choose from {', '.join(known)}")
    found = answers(given.answers, list(about["fields"]))
    wanted = [each for each in about["fields"] if not given.only or each in given.only]
    missing = [each for each in wanted if each not in found]
    if missing:
        raise Refused(f"{', '.join(missing)} of {name} is not given; give it, or name what is to be compared by --only")
    unused = [each for each in found if each not in wanted]
    if unused:
        raise Refused(f"{', '.join(unused)} is given, and --only leaves it out")
    fields = [Field(each, about["fields"][each], tensors, given.convention) for each in wanted]
    return compare(name, fields, found)


def run(words):
    """The exit code; what cannot be compared is one line of stderr."""
    try:
        code = main(words)
        sys.stdout.flush()
        return code
    except Refused as refused:
        print(f"error: {refused}", file=sys.stderr)
    except OSError as error:
        print(f"error: the output: {error.strerror or error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would fail again at its end
    except (AttributeError, KeyError, TypeError, IndexError, ValueError, MemoryError) as error:
        print(f"error: the set is damaged: {type(error).__name__}", file=sys.stderr)
    return REFUSED


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
