"""Every change of a CUDA source by the operators of `change`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from evidence.mutants.generated import change as kinds
from evidence.mutants.generated.change import Mutation, other_names
from evidence.mutants.generated.cuda_text import Call, CudaText
from evidence.mutants.source import NAME, NUMBER, STRING, Token
from harness.contract.case import FlagValue
from harness.jit.signature import TemplateParameter

_ABS = re.compile(r"fabsf?|abs\d?|__h?abs\d?")
_CLAMP = re.compile(r"fm(in|ax)f?|m(in|ax)2?|__hm(in|ax)2?")
_COMMUTATIVE = re.compile(rf"{_CLAMP.pattern}|__[fd](add|mul)_rn|mul_f16x2|__popc|__umulhi")
_FENCE = re.compile(r"__threadfence\w*|\w*fence\w*|\w*wait(_group)?|\w*commit(_group)?")
_BARRIER = re.compile(r"__sync(threads|warp)|\w+_sync|wait_for_\w+")
_ATOMIC = re.compile(r"atomic[A-Z]\w+[a-z]")
_NARROWER = {"__threadfence": "__threadfence_block", "__syncthreads": "__syncwarp", "__ldcg": "__ldg"}
_ORDERS = {"acq_rel": ("acquire", "release"), "acquire": ("relaxed",), "release": ("relaxed",)}
_WEAKER_IN_ASM = _ORDERS | {"gpu": ("cta",), "sys": ("cta",), "cluster": ("cta",)}
_NARROW = {"i64": "int", "u64": "u32", "size_t": "u32", "int64_t": "int", "uint64_t": "u32"}
_ARRIVALS = {"arrivals", "tiles", "across", "down"}
_BEFORE_ARRIVALS, _AFTER_ARRIVALS = {"(", ",", "<", "==", "!="}, {")", ",", "-", "==", "!="}
_FULL_WARP = "~0u"
_CONSTANT = re.compile(r"-?(k[A-Z]\w*|[A-Z_]+|[\d.]+[\w.+-]*)")


def changes_of_cuda(text: str, flags: Mapping[str, FlagValue]) -> Iterator[Mutation]:
    """flags: every flag of a suite that reaches the file, with its default"""
    source = CudaText(text)
    for i, token in enumerate(source.tokens):
        if 0 < i < len(source.tokens) - 1:
            yield from _of_token(source, i, token, flags)
    for call in source.calls():
        yield from _of_call(source, call)


def _of_token(source: CudaText, i: int, token: Token, flags: Mapping[str, FlagValue]) -> Iterator[Mutation]:
    if token.kind == NUMBER:
        yield from _constants(token)
    elif token.kind == STRING:
        yield from _order_of_asm(token)
    elif token.text in kinds.OPPOSITE and source.spaced(i):
        kind = kinds.COMPARISON if token.text[0] in "<>" else kinds.SUM
        yield Mutation(kind, token.start, token.end, kinds.OPPOSITE[token.text])
    elif token.kind == NAME:
        yield from _of_name(source, i, token)
        yield from _flags(source, i, token, flags)
        yield from _statements(source, i, token)


def _constants(token: Token) -> Iterator[Mutation]:
    digits = token.text.replace("'", "")
    if floating := not digits.lower().startswith("0x") and re.search(r"[.eEfF]", digits) is not None:
        number, suffix = float(digits.rstrip("fF")), "f" * digits.lower().endswith("f")
    else:
        number, suffix = int(digits.rstrip("uUlL"), 0), digits[len(digits.rstrip("uUlL")) :]
    results = {kinds.PLUS: number + 1, kinds.MINUS: number - 1, kinds.TWICE: number * 2}
    seen = {number}
    for operator, result in results.items():
        if result in seen or (result < 0 and suffix.lower().startswith("u")):
            continue
        seen.add(result)
        written = repr(result) if floating else f"{result:#x}" if digits.lower().startswith("0x") else str(result)
        yield Mutation(operator, token.start, token.end, f"({written}{suffix})" if result < 0 else written + suffix)


def _order_of_asm(token: Token) -> Iterator[Mutation]:
    """A narrower scope, or an order that is a fence less."""
    for strong, weaker in _WEAKER_IN_ASM.items():
        kind = kinds.FENCE if strong in _ORDERS else kinds.SCOPE
        for found in re.finditer(rf"\.{strong}\b", token.text):
            for weak in weaker:
                yield Mutation(kind, token.start + found.start(), token.start + found.end(), f".{weak}")


def _of_name(source: CudaText, i: int, token: Token) -> Iterator[Mutation]:
    before, after = source.tokens[i - 1].text, source.tokens[i + 1].text
    declared = source.is_declared(i)
    if token.text == "volatile" and not (before == "asm" and source.has_no_output(i + 1)):
        yield Mutation(kinds.VOLATILE, token.start, source.tokens[i + 1].start, "")
    if token.text in _NARROWER and after == "(":
        yield Mutation(kinds.SCOPE, token.start, token.end, _NARROWER[token.text])
    if _ATOMIC.fullmatch(token.text) and after == "(":
        yield Mutation(kinds.SCOPE, token.start, token.end, f"{token.text}_block")
    if token.text in _NARROW and before != "using":
        yield Mutation(kinds.NARROW, token.start, token.end, _NARROW[token.text])
    if token.text in _ARRIVALS and not declared and before in _BEFORE_ARRIVALS and after in _AFTER_ARRIVALS:
        yield Mutation(kinds.PARTICIPANTS, token.start, token.end, f"({token.text} - 1)")
    if token.text in kinds.INDICES and (before, after) == ("[", "]"):
        yield Mutation(kinds.GROUP, token.start, token.end, f"{token.text} + 1")
        yield Mutation(kinds.GROUP, token.start, token.end, f"{token.text} - 1")
    if not declared and not source.in_template_head(i):
        for other in other_names(token.text, source.names):
            yield Mutation(kinds.PLANE, token.start, token.end, other)


def _flags(source: CudaText, i: int, token: Token, flags: Mapping[str, FlagValue]) -> Iterator[Mutation]:
    kind = source.template_parameters.get(token.text)
    before, after = source.tokens[i - 1].text, source.tokens[i + 1].text
    if kind is None or before not in ("<", ",", "(") or after not in (">", ",", ")") or source.in_template_head(i):
        return
    if kind == "bool" or token.text in flags:
        wrong = TemplateParameter(kind, token.text).spell(flags.get(token.text, False))
        yield Mutation(kinds.FLAG, token.start, token.end, wrong)


def _statements(source: CudaText, i: int, token: Token) -> Iterator[Mutation]:
    """Remove a fence or a barrier, called or in assembly."""
    if not source.begins_statement(i):
        return
    end = source.statement_end(i)
    statement = source.text[token.start : end]
    if token.text == "asm":
        if re.search(r"\bfence|wait_group|commit_group", statement):
            yield Mutation(kinds.FENCE, token.start, end, ";")
        if re.search(r'"bar\.|barrier', statement):
            yield Mutation(kinds.BARRIER, token.start, end, ";")
            for found in re.finditer(r'"[nr]"\(([^()]+)\)', statement):
                first, last = found.span(1)
                yield Mutation(kinds.PARTICIPANTS, token.start + first, token.start + last, f"{found[1]} / 2")
    elif re.match(r"\w+(<[^;()]*>)?\(", statement):
        if _FENCE.fullmatch(token.text):
            yield Mutation(kinds.FENCE, token.start, end, ";")
        elif _BARRIER.fullmatch(token.text):
            yield Mutation(kinds.BARRIER, token.start, end, ";")
            if source.tokens[i + 1].text == "(" and token.text not in _NARROWER and token.text != "__syncwarp":
                yield Mutation(kinds.SCOPE, token.start, end, "__syncwarp();")


def _of_call(source: CudaText, call: Call) -> Iterator[Mutation]:
    name = source.tokens[call.name].text
    start, end = source.tokens[call.name].start, source.tokens[call.close].end
    parts = [source.text[first:last] for first, last in call.arguments]
    if name.endswith("_sync") and parts and parts[0] == _FULL_WARP:
        for mask in (f"{_FULL_WARP} >> 1", "0xFFFFu"):
            yield Mutation(kinds.PARTICIPANTS, *call.arguments[0], mask)
    if name.endswith("_wait"):
        for first, last in source.template_arguments(call.name):
            yield Mutation(kinds.PARTICIPANTS, first, last, f"{source.text[first:last]} + 1")
    if _ABS.fullmatch(name) and parts:
        yield Mutation(kinds.ABS, start, end, f"({parts[0]})")
    if _CLAMP.fullmatch(name) and len(parts) >= 2:
        for part in parts[:2]:
            if not _CONSTANT.fullmatch(part):
                yield Mutation(kinds.CLAMP, start, end, f"({part})")
    if not _COMMUTATIVE.fullmatch(name):
        yield from _swaps(source.text, call.arguments)


def _swaps(text: str, arguments: tuple[tuple[int, int], ...]) -> Iterator[Mutation]:
    """Swap neighbouring arguments of a call."""
    for (first, end), (begin, last) in zip(arguments, arguments[1:], strict=False):
        one, other = text[first:end], text[begin:last]
        if one != other:
            yield Mutation(kinds.SWAP, first, last, other + text[end:begin] + one)
