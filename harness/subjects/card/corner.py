"""Run a card's case as the last rows and columns of a larger tensor, to catch an index of 32 bits.

Which blocks of a card's grid have the end of a tensor is not known. Those at both ends of each axis are run, and if
they write other bytes there, the same is tried with a tensor in which 32 bits are enough. Only if the bytes are right
in that one is the index to blame; otherwise nothing is known about the larger tensor, which the end of the run says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.device.device import Outcome
from harness.device.emulated_corner import LARGEST_ARRAY, clear, corner, ends, sides, sparse
from harness.errors import AccessError, HarnessError, LaunchError, NotEmulated, SuiteError
from harness.subjects.card.arguments import extents_of
from harness.subjects.card.card import MASKED_M, Card
from harness.subjects.card.device import CardDevice, EmulatedCard, EmulatedMemory
from harness.subjects.card.input_fields import input_fields
from harness.subjects.card.promised import Promised
from harness.subjects.card.schema import Launch
from harness.subjects.card.tensor_starts import Starts, tensor_starts
from harness.suite.sizes import size_of
from harness.suite.suite import suite_of
from harness.verdict import Verdict
from harness.verify.corner import POISONS, at_the_end, control, inputs_around, story
from harness.verify.expected import Expected, fields_of
from harness.verify.not_run import keep_note, note_no_corners
from ptx_emulator.launches import Module
from ptx_emulator.memory import Buffer

_LARGEST_I32 = (1 << 31) - 1


def wrong_corner(
    case: Case, device: CardDevice, ours: Expected, written: Mapping[str, np.ndarray]
) -> tuple[Verdict, str, str] | None:
    """The verdict, reason and story, if bytes at the end of a larger tensor of the suite are wrong.

    ours: the contract's expectation; written: what the card wrote for the case itself
    Raises AccessError for a wrong access there. Notes the larger tensors that nothing can be said about.
    """
    if device.name == "cuda":
        return None
    note_no_corners(case)
    for problem in suite_of(case.recipe).corners(case):
        larger = replace(case, problem=problem, seed_of=case.seed_name)
        wrong = _refusal(device.card, larger) or _wrong(case, larger, device, ours, written)
        if not wrong:
            continue
        if isinstance(wrong, HarnessError) and not _of_an_index(wrong):
            keep_note(case.id, larger.shape, str(wrong))
        elif _wrong(case, same := control(case, larger), device, ours, written):
            why = f"the bytes are wrong as the end of {same.shape}, too, so it is not known which blocks write them"
            keep_note(case.id, larger.shape, why)
        elif isinstance(wrong, AccessError):
            raise at_the_end(wrong, larger)
        else:
            reason = f"{device.targets[0]}: bytes differ in {wrong}, as the end of {larger.shape}"
            return Verdict.MISMATCH, reason, story(case, reason)
    return None


def _refusal(card: Card, larger: Case) -> LaunchError | None:
    """Why the card cannot be launched for a larger tensor, if it says so itself."""
    why = card.refuses(larger) or ("there are masked rows behind it" if card.masked else "")
    return LaunchError(why) if why else None


def _of_an_index(error: HarnessError) -> bool:
    """Whether an error is one that an index which overflowed may cause."""
    return isinstance(error, AccessError) and error.kind in ("out_of_bounds", "misaligned")


def _wrong(
    case: Case, larger: Case, device: CardDevice, ours: Expected, written: Mapping[str, np.ndarray]
) -> str | HarnessError:
    """The outputs whose bytes are wrong at the end of a larger tensor, or the error that the launches ended with."""
    keeping = device.card.keeping(case)
    expected = keeping.expected(ours)
    try:
        program = CornerCard(device.card, device.module, case, larger, ours.inputs, expected)
        promised = Promised(program, keeping.outputs(ours.fields), expected.values)
        for repeat, poison in enumerate(POISONS):
            found = promised.filled(program.run(poison, repeat)).outputs
            wrong = [
                name for name, value in expected.values.items()
                if not device.accepts(found[name], value) and not np.array_equal(found[name], written[name])
            ]  # fmt: skip
            if wrong:
                return ", ".join(wrong)
    except (LaunchError, NotEmulated, SuiteError) as error:
        return error
    return ""


class CornerCard(EmulatedCard):
    """A case inside of a larger one.

    larger: the case with the extents of the tensor around it; inputs: the case's own arrays, in the contract's form
    expected: of the case, in the card's form
    """

    def __init__(
        self, card: Card, module: Module, case: Case, larger: Case, inputs: Mapping[str, np.ndarray], expected: Expected
    ):  # fmt: skip
        super().__init__(card, module, larger, expected.inputs, expected.fields)
        self.own_numbers = card.numbers(case)
        made, around = inputs_around(case, larger, inputs)
        stand_ins = {
            name: np.broadcast_to(np.zeros((), field.dtype), field.shape) for name, field in around.items()
        }  # arrays that have a shape and no memory
        fields, keeping = fields_of(larger), card.keeping(larger)
        whole = {**input_fields(larger, stand_ins), **fields}
        self.whole = {name: keeping.form(name, field).kept for name, field in whole.items()}
        extents = {name: array for name, array in made.items() if array.dtype == np.int64}  # of a group's tensors
        self.inputs = {**expected.inputs, **extents}
        self._starts: Starts | None = None
        self._find_starts = lambda: tensor_starts(keeping, stand_ins)

    def run(self, poison: int, repeat: int) -> Outcome:
        """The launches, in memory of which only touched pages exist; the outputs are the case's own part of it."""
        memory = SparseMemory({}, self._tensor_starts)
        for name, value in self.inputs.items():
            _place(memory.put(name, self.whole[name].nbytes), self.whole[name], value)
            memory.buffers[name].writable = False
        memory.put_rows(self.case.rows)
        seen = {}
        for name, field in self.fields.items():
            seen[name] = corner(memory.put(name, self.whole[name].nbytes), self.whole[name], field.shape)
            seen[name].view(np.uint8)[...] = poison
        for name, size in (self.card.file.workspace | self.card.file.scratch).items():
            memory.put(name, size_of(size, self.numbers))
        for number, each in self.card.launches(self.case):
            if each.zero is not None:
                memory.clear(each.zero)
            else:
                self._launch(number, each, memory, self.order(repeat), None)
        return Outcome({name: np.ascontiguousarray(part).reshape(-1).view(np.uint8) for name, part in seen.items()})

    def _only(self, each: Launch, entry: str) -> tuple[int, ...]:
        own = self.module.code(entry).resources.kernel.cluster or (1, 1, 1)
        cluster = extents_of(each.cluster, self.numbers) if each.cluster else own
        if cluster[2] > 1:
            raise LaunchError("clusters of blocks along z")
        grid, small = (extents_of(each.grid, numbers) for numbers in (self.numbers, self.own_numbers))
        return ends(grid, small, cluster[:2])

    def _tensor_starts(self) -> Starts:
        if self._starts is None:
            self._starts = self._find_starts()
        return self._starts


class SparseMemory(EmulatedMemory):
    """The arrays of one run, zero, of any size."""

    def put(self, name: str, size: int, byte: int = 0, initialised: bool = True) -> np.ndarray:
        if size >= LARGEST_ARRAY:
            raise LaunchError(f"'{name}' has {size:,} bytes; the emulator allows {LARGEST_ARRAY:,}")
        content = sparse(size)
        self.buffers[name] = Buffer(name, content)
        return content

    def put_rows(self, rows: int) -> None:
        """Put the number of rows into MASKED_M, as far as it is one of 32 bits."""
        if rows <= _LARGEST_I32:
            self.put(MASKED_M, 4).view(np.int32)[...] = rows

    def clear(self, name: str) -> None:
        clear(self.buffers[name].data)


def _place(memory: np.ndarray, field: Field, value: np.ndarray) -> None:
    """Put a value at the end of an array."""
    corner(memory, field, value.shape)[...] = value.view(field.dtype).reshape(sides(value.shape, field))
