"""Calls of functions, each replaced by a copy of the function's body, with registers and labels of its own.

The parameters and results of calls are variables in local memory, which a thread has for itself, as it has its stack.
A call through a pointer compares it with the addresses of the functions that it may mean, and goes on in a copy of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from ptx_emulator.errors import NotEmulated
from ptx_emulator.ptx import limits
from ptx_emulator.ptx.kernel_body import BodyParser, Copy, split
from ptx_emulator.ptx.syntax import Address, Kernel, Name, Operand, Variable, variable

_CALL = re.compile(
    r"(?:\(\s*([\w$%]*)\s*\)\s*,\s*)?([\w$%]+)\s*(?:,\s*\(([^)]*)\))?\s*(?:,\s*([A-Za-z_$%][\w$%]*))?\s*$"
)
_PARAM = re.compile(r"\.param(::func)?\b")
_PROTOTYPE = re.compile(r"\.callprototype\s*(?:\(([^)]*)\)\s*)?_\s*(?:\(([^)]*)\))?")


class Body(Protocol):
    """The text of a function. line: where its body starts"""

    parameters: str
    results: str
    body: str
    line: int


class Form(NamedTuple):
    """The parameters and results of a function."""

    results: tuple[Variable, ...]
    parameters: tuple[Variable, ...]

    def fits(self, other: Form) -> bool:
        """Whether both have results and parameters of the same sizes."""
        return all(
            [one.size for one in mine] == [one.size for one in its] for mine, its in zip(self, other, strict=True)
        )


class Call(NamedTuple):
    """A call as it is written: the function or register, the result, if any, and what is given."""

    mnemonic: str
    function: str
    results: list[str]
    given: list[str]


class Functions:
    """A module's functions, for one of its kernels.

    bodies: by name, None for one that is only declared; pointed_at: tells whose addresses the module takes
    """

    def __init__(self, bodies: Mapping[str, Body | None], pointed_at: Callable[[], frozenset[str]]):
        self.bodies, self.pointed_at = bodies, pointed_at
        self.forms: dict[str, Form] = {}
        self.left = limits.COPIED

    def form(self, name: str) -> Form:
        """The parameters and results of a function that has a body."""
        if name not in self.forms:
            body = self.bodies[name]
            self.forms[name] = Form(_declared(body.results), _declared(body.parameters))
        return self.forms[name]

    def copied(self, name: str) -> Body:
        """A function's text, once more. Raises NotEmulated for more text than a kernel may have."""
        body = self.bodies[name]
        self.left -= len(body.body) + 256  # an empty one takes time, too
        if self.left < 0:
            raise NotEmulated(f"copies of functions of more than {limits.COPIED} characters, one at each call")
        return body


class InliningParser(BodyParser):
    """Parses a kernel, or a copy of a function in it, with a copy of each function that is called."""

    def __init__(
        self, kernel: Kernel, files: dict[int, str], name: str, functions: Functions, copy: Copy | None = None
    ):
        super().__init__(kernel, files, name, copy)
        self.functions = functions
        self.called = copy.functions if copy else ()
        # The parameters and results of calls, by unique name.
        self.passed = {each for each in copy.bound.values() if each in kernel.variables} if copy else set()
        self.may_mean: dict[str, str] = {}  # `.callprototype` or `.calltargets`, by unique label

    def _declare_call(self, text: str) -> None:
        if not text.startswith(".param"):
            self.may_mean[self.pending_label] = text
            return
        declared = variable(text)
        # Calls of one function follow one another, so those of their parameters that are alike may share memory.
        where = f"@{self.called[-1] if self.called else ''}:{len(self.scopes)}:{declared.size}:{declared.align}"
        self.passed.add(self._declare(replace(declared, space="local"), where))

    def _of_call(self, mnemonic: str, operands: tuple[Operand, ...]) -> str:
        name = next((each.base.text for each in operands if isinstance(each, Address) and each.base), "")
        # An address in a register of a function is that of its own parameter; a kernel's parameters are elsewhere.
        if name in self.passed or self.copy and name in self.kernel.registers:
            return _PARAM.sub(".local", mnemonic)
        return mnemonic

    def _call(self, mnemonic: str, text: str, guard: Name | None) -> None:
        match = _CALL.match(text)
        result, function, given, label = match.groups() if match else ("", "", "", "")
        call = Call(mnemonic, function, [result] if result else [], split((given or "").strip()))
        if self._resolve(function) in self.kernel.registers:
            self._through_pointer(call, label, guard)
        elif self.functions.bodies.get(function):
            behind = self._skipped(guard)
            self._enter(call)
            self._place(behind)
        else:
            self._of_system(call, guard)

    def _through_pointer(self, call: Call, label: str | None, guard: Name | None) -> None:
        found = next((labels[label] for labels in reversed(self.labels) if label in labels), "")
        if found not in self.may_mean:
            self._emit(call.mnemonic, guard=guard)
            return
        behind, end, pointer = self._skipped(guard), self._new_label(), Name(self._resolve(call.function))
        for function in self._meant(self.may_mean[found]):
            other, test = self._new_label(), self._new_register("pred")
            self._emit("setp.ne.u64", test, pointer, Name(function))
            self._emit("bra", Name(other), guard=test)
            self._enter(call._replace(function=function))
            self._emit("bra", Name(end))
            self._place(other)
        self._emit(call.mnemonic, pointer)
        self._place(end)
        self._place(behind)

    def _meant(self, text: str) -> Iterator[str]:
        """The functions that a call through a pointer may mean, from its `.callprototype` or `.calltargets`."""
        if text.startswith(".calltargets"):
            yield from (name for name in re.findall(r"[\w$]+", text)[1:] if self.functions.bodies.get(name))
            return
        found, pointed_at = _PROTOTYPE.match(text), self.functions.pointed_at()
        wanted = Form(_declared(found[1] or ""), _declared(found[2] or ""))
        for name, body in self.functions.bodies.items():
            if body and name in pointed_at and self.functions.form(name).fits(wanted):
                yield name

    def _of_system(self, call: Call, guard: Name | None) -> None:
        """Call a function without a body, which may be `vprintf`: its operands are registers."""
        operands: list[Operand] = [Name("_"), Name(call.function)] if call.function else []
        result = self._resolve(call.results[0]) if call.results else ""
        for given in call.given:
            operand = self._operand(given)
            if (unique := self._resolve(given)) in self.passed and (kind := self._kind(unique)):
                operand = self._new_register(kind)
                self._move(kind, operand, Address(Name(unique), 0))
            operands.append(operand)
        if result in self.passed and (kind := self._kind(result)):
            operands[0] = self._new_register(kind)
            self._emit(call.mnemonic, *operands, guard=guard)
            self._move(kind, Address(Name(result), 0), operands[0])
        else:
            self._emit(call.mnemonic, *operands, guard=guard)

    def _enter(self, call: Call) -> None:
        """Copy a function's body here. Raises NotEmulated if it takes or returns something else."""
        if call.function in self.called:
            self.kernel.recursive.add(call.function)
            self._emit(call.mnemonic, Name("_"), Name(call.function))
            return
        form, body = self.functions.form(call.function), self.functions.copied(call.function)
        if len(self.called) == limits.NESTING:
            raise NotEmulated(f"calls in one another, more than {limits.NESTING}")
        if (len(call.results), len(call.given)) != (len(form.results), len(form.parameters)):
            raise NotEmulated(f"a call of {call.function} with other parameters or results than it has")
        bound: dict[str, str] = {}
        for formal, given in zip(form.parameters, call.given, strict=True):
            bound[formal.name], inside, outside = self._bound(call.function, formal, given)
            self._move(self._kind(bound[formal.name]), inside, outside)
        returned = [self._bound(call.function, *each) for each in zip(form.results, call.results, strict=True)]
        bound |= {formal.name: unique for formal, (unique, _, _) in zip(form.results, returned, strict=True)}
        copy = Copy((*self.called, call.function), self._here(), self._new_label(), bound)
        InliningParser(self.kernel, self.files, self.name, self.functions, copy).parse(body.body, body.line)
        self._place(copy.end)
        for unique, inside, outside in returned:
            self._move(self._kind(unique), outside, inside)

    def _bound(self, function: str, formal: Variable, given: str) -> tuple[str, Operand | None, Operand | None]:
        """A parameter or result in a function's copy: its unique name, and if it is not the caller's own
        variable, the operand that it is in the copy and the one that it is outside.
        """
        unique = self._resolve(given)
        if unique in self.passed and formal.space == "param":
            if self.kernel.variables[unique].size != formal.size:
                raise NotEmulated(f"a call of {function} with {given} of other than {formal.size} bytes")
            return unique, None, None
        outside = Address(Name(unique), 0) if unique in self.passed else self._operand(given)
        if formal.space == "reg":
            register = self._new_register(f"b{8 * formal.size}")
            return register.text, register, outside
        unique = self._add(replace(formal, name=f"{formal.name}@{function}", space="local"))
        return unique, Address(Name(unique), 0), outside

    def _move(self, kind: str, target: Operand | None, source: Operand | None) -> None:
        if target is not None and source is not None:
            stores, loads = isinstance(target, Address), isinstance(source, Address)
            self._emit(f"{'st.local' if stores else 'ld.local' if loads else 'mov'}.{kind}", target, source)

    def _kind(self, unique: str) -> str:
        """The type of a variable's or register's bits; empty if no register has as many."""
        variable = self.kernel.variables.get(unique)
        size = variable.size if variable else 0
        return self.kernel.registers.get(unique) or (f"b{8 * size}" if size in (1, 2, 4, 8) else "")

    def _new_register(self, kind: str) -> Name:
        name = f"call@{len(self.kernel.registers)}"
        self.kernel.registers[name] = kind
        return Name(name)

    def _new_label(self) -> str:
        """A label to be placed later."""
        name = f"call@{len(self.kernel.labels)}"
        self.kernel.labels[name] = 0
        return name

    def _place(self, label: str) -> None:
        if label:
            self.kernel.labels[label] = len(self.kernel.instructions)

    def _skipped(self, guard: Name | None) -> str:
        """A label that lanes without the guard go to, to be placed later; empty if there is no guard."""
        if not guard:
            return ""
        label = self._new_label()
        self._emit("bra", Name(label), guard=Name(guard.text, not guard.negated))
        return label


def _declared(text: str) -> tuple[Variable, ...]:
    items = (item for item in text.split(",") if item.strip())
    return tuple(variable(item, "reg" if ".reg" in item else "param") for item in items)
