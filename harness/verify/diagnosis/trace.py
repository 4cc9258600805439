"""One block of 16 values, step by step: the contract's steps, both oracles and a kernel side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Demand, Interval, order
from harness.errors import DeviceUnavailable, UsageError
from harness.expected.expected import NUMPY_LARGEST, make_inputs, oracle_of
from harness.expected.formats import BLOCK, E2M1_VALUES, VALUES, format_of, unpacked
from harness.expected.torch_calls import ask_torch
from harness.verify.diagnosis import parts
from harness.verify.diagnosis.decode_steps import DecodeSteps, steps_of, terms
from harness.verify.diagnosis.difference import compacted
from harness.verify.diagnosis.step_table import Section, StepRow, rendered
from harness.verify.diagnosis.steps import Steps, side_and_kind

_MOST_TERMS = 32  # at most this many terms of a sum are shown


@np.errstate(all="ignore")  # NumPy warns of signalling NaNs, which a wrong kernel may write
def trace(
    case: Case, field: str | None = None, at: tuple[int, int] = (0, 0), kernel: Mapping[str, np.ndarray] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None, tensor: int = 0,
) -> str:  # fmt: skip
    """The block that holds one element, as text.

    field: an output of the case, which decides the direction; the first if None
    at: (row, col) of an element of the high-precision tensor; in a pipeline, the tensor of the stage that writes the
    field
    tensor: which tensor of a group, the first being 0
    kernel: a kernel's output, by field; without it the column is empty
    inputs: the kernel's inputs, by parameter; made from the case if None
    raises UsageError for a field, a tensor or an element the case does not have
    """
    oracle = oracle_of(case.recipe)
    fields = oracle.outputs(case)
    name = next(iter(fields)) if field is None else field
    if name not in fields:
        raise UsageError(f"{case.id} has no output {name!r}; it has {', '.join(fields)}")
    stage = parts.writer(case, name)
    alone = stage.case
    if case.is_group:
        parts.require_elements(alone, tensor)
    elif tensor:
        raise UsageError(f"{case.id} has one tensor; tensor {tensor} is one of a group")
    (rows, cols), *_ = alone.part(tensor).problem.grid_extents if case.is_group else alone.problem.grid_extents
    if not (0 <= at[0] < rows and 0 <= at[1] < cols):
        what = "output" if stage.case.is_gemm else "tensor"
        of = f"stage {stage.name} of {case.id}" if stage.name else case.id
        raise UsageError(f"element {at[0]},{at[1]} is outside the {rows}x{cols} {what} of {of}")
    inputs = make_inputs(case) if inputs is None else inputs
    outputs = {"numpy": oracle.numpy_oracle(case, dict(inputs))} if case.work <= NUMPY_LARGEST else {}
    with suppress(DeviceUnavailable):
        outputs["torch"] = ask_torch(oracle, case, inputs)
    if kernel is not None:
        outputs["kernel"] = kernel
    title = [name]
    if stage.name:
        title = [f"stage {parts.stage_spelled(stage)}", name]
        inputs = parts.inputs_of_stage(stage, inputs, next(iter(outputs.values())))
        outputs = {who: stage.select(arrays) for who, arrays in outputs.items()}
        fields, name = stage.select(fields), name.removeprefix(stage.key(""))
    if case.is_group:
        title.insert(-1, f"tensor {parts.tensor_spelled(alone, tensor)}")
        inputs = parts.inputs_of_tensor(alone, inputs, tensor)
        alone = alone.part(tensor)
        outputs = {who: parts.cut(fields, arrays, tensor) for who, arrays in outputs.items()}
        fields = parts.fields_of_tensor(fields, tensor)
    alone, inputs = parts.activated(alone, inputs)
    spot = _Spot(fields, name, at, outputs)
    side, _ = side_and_kind(name)
    steps = steps_of(alone, side)
    if isinstance(steps, DecodeSteps):
        spot = spot.of_columns() if steps.transposed else spot
        tables = _decoding(spot, steps, inputs)
    elif steps is not None:
        tables = _encoding(spot, steps, side, inputs)
    elif alone.is_gemm:
        tables = [_product(spot, alone, inputs), _elements(spot, [at])]
    else:
        tables = _block_without_steps(spot, side, inputs) or _entries(spot)
    place = f"block {spot.block} of line {spot.line}, from input {list(at)}"
    if alone.is_gemm:
        place = f"row {at[0]} of A by row {at[1]} of B, summed in order"
    reference = "" if steps is not None or alone.is_gemm else next(iter(spot.witnesses))
    return rendered((case.id, ": ".join([*title, place])), spot.witnesses, tables, reference)


@dataclass(frozen=True)
class _Spot:
    """One element, (row, col) of the tensor, and arrays by field of the witnesses `numpy`, `torch` and `kernel`.

    line: of the output, a row or a column of the tensor; block, span: the element's `width` of that line, as many as
        have a scale in common
    """

    fields: Mapping[str, Field]
    name: str
    at: tuple[int, int]
    witnesses: Mapping[str, Mapping[str, Demand]]

    def of_columns(self) -> _Spot:
        """The spot in the transposed output, whose lines are columns."""
        witnesses = {who: {name: array.T for name, array in arrays.items()} for who, arrays in self.witnesses.items()}
        return replace(self, at=self.at[::-1], witnesses=witnesses)

    @property
    def _scales(self) -> Field | None:
        side = side_and_kind(self.name)[0]
        return self.fields.get(f"{side}_scale_inv") if side else None

    @property
    def down(self) -> bool:
        """Whether a line is a column of the tensor."""
        field = self.fields[self.name] if self._scales is None else self._scales
        return field.transposed or (self._scales is not None and field.block[0] > 1 == field.block[1])

    @property
    def width(self) -> int:
        return BLOCK if self._scales is None else max(self._scales.block)

    @property
    def line(self) -> int:
        return self.at[1] if self.down else self.at[0]

    @property
    def block(self) -> int:
        return (self.at[0] if self.down else self.at[1]) // self.width

    @property
    def span(self) -> slice:
        return slice(self.block * self.width, self.block * self.width + self.width)

    def ask(self, name: str) -> dict[str, Demand]:
        if name not in self.fields:
            return {}
        found = {who: arrays[name] for who, arrays in self.witnesses.items()}
        field = self.fields[name]
        return {who: it if isinstance(it, Interval) else compacted(field, it) for who, it in found.items()}


def _encoding(spot: _Spot, steps: Steps, side: str, inputs: Mapping[str, np.ndarray]) -> list[Section]:
    x = inputs["input"]
    given = inputs.get(f"{side}_amax")
    amax = steps.amax(x) if given is None else given
    numbers = steps.group(spot.line)
    encoded = steps.encode(steps.lines(x, numbers), numbers, amax)
    here, block = int(np.flatnonzero(numbers == spot.line)[0]), spot.block

    def of_block(array: np.ndarray) -> np.generic:
        return np.broadcast_to(array, encoded.scale.shape)[here, block]

    form = steps.scale_format
    scales = {who: _scale(array[spot.line, block], form) for who, array in spot.ask(f"{side}_scale_inv").items()}
    amaxes = {who: _float(_granule(array, spot)) for who, array in spot.ask(f"{side}_amax").items()}
    multiplier = {"direct": "2.7", "fast": "3"}.get(steps.multiplier, "2.6"), f"multiplier, {steps.multiplier}"
    head = [
        StepRow(("2.2", "amax"), _float(_granule(amax, spot)), amaxes),
        StepRow(("2.1", "S_enc"), _float(of_block(encoded.encode_scale)), {}),
        StepRow(("2.3", "S_dec"), _float(of_block(encoded.decode_scale)), {}),
        StepRow(("2.2", "block amax"), _float(of_block(encoded.block_amax)), {}),
        StepRow(("2.4", "scale before its cast"), _float(of_block(encoded.scale)), {}),
        StepRow(("2.4", "scale_inv"), _scale(of_block(encoded.scale_inv), form), scales),
        StepRow(multiplier, _float(of_block(encoded.multiplier)), {}),
    ]
    raw = x[spot.span, spot.line] if steps.direction else x[spot.line, spot.span]
    data = {who: unpacked(array[spot.line])[spot.span] for who, array in spot.ask(f"{side}_data").items()}
    body = []
    for i, position in enumerate(range(spot.span.start, spot.span.stop)):
        cells = [str(i), _float(raw[i])]
        if steps.rotation is not None:
            cells.append(_float(encoded.values[here, position]))
        cells.append(_float(encoded.product[here, position]))
        if encoded.random is not None:
            cells.append(str(encoded.random[here, position]))
        theirs = {who: _code(codes[i]) for who, codes in data.items()}
        body.append(StepRow(tuple(cells), _code(encoded.codes[here, position]), theirs))
    rotated = ("rotated 2.10",) if steps.rotation is not None else ()
    random = ("random 2.9",) if encoded.random is not None else ()
    return [Section(("", "step"), head), Section(("i", "x", *rotated, "x * m 2.8", *random), body)]


def _decoding(spot: _Spot, steps: DecodeSteps, inputs: Mapping[str, np.ndarray]) -> list[Section]:
    got = steps.decode(inputs, np.array([spot.line]))
    head = [
        StepRow(("9", "amax"), _float(got.amax[0, spot.block]), {}),
        StepRow(("9", "scale_inv"), _scale(got.scale_inv[0, spot.block], steps.scale_format), {}),
        StepRow(("9", "scale_inv * amax"), _float(got.scaled_amax[0, spot.block]), {}),
        StepRow(("9", f"factor, e4m3_max {steps.e4m3_max}"), _float(got.factor[0, spot.block]), {}),
    ]
    arrays = spot.ask(spot.name)
    body = [
        StepRow(
            (str(i), _code(got.codes[0, position]), _float(got.product[0, position])),
            _entry(got.output[0, position]),
            {who: _entry(array[spot.line, position]) for who, array in arrays.items()},
        )
        for i, position in enumerate(range(spot.span.start, spot.span.stop))
    ]
    return [Section(("", "step"), head), Section(("i", "code", "q * factor"), body)]


def _block_without_steps(spot: _Spot, side: str, inputs: Mapping[str, np.ndarray]) -> list[Section]:
    """The element's sixteen inputs beside the amaxes, scales and codes of every witness, for a recipe without steps.

    Empty if the field is not one of a quantizer's, or its input is no matrix.
    """
    x, fields = inputs.get("input"), spot.fields
    if not side or x is None or x.ndim != 2 or f"{side}_data" not in fields:
        return []
    line, block = spot.line, spot.block
    raw = x[spot.span, line] if spot.down else x[line, spot.span]
    head = []
    if f"{side}_amax" in fields:
        amaxes = {who: _float(_granule(array, spot)) for who, array in spot.ask(f"{side}_amax").items()}
        head.append(StepRow(("amax",), next(iter(amaxes.values())), amaxes))
    magnitudes = np.abs(raw.astype(np.float32))
    amax = _float(np.where(np.isnan(magnitudes), np.float32(0), magnitudes).max())
    head.append(StepRow(("block amax of x",), amax, dict.fromkeys(spot.witnesses, amax)))
    if f"{side}_scale_inv" in fields:
        field = fields[f"{side}_scale_inv"]
        at = (block, line) if spot.down and not field.transposed else (line, block)
        scales = {who: _scale(array[at], field.format) for who, array in spot.ask(f"{side}_scale_inv").items()}
        head.append(StepRow(("scale_inv",), next(iter(scales.values())), scales))
    field = fields[f"{side}_data"]
    lines = {
        who: array[:, line] if spot.down and not field.transposed else array[line]
        for who, array in spot.ask(f"{side}_data").items()
    }
    if format_of("data", field.format) == "e2m1x2":
        codes, spelled = {who: unpacked(array)[spot.span] for who, array in lines.items()}, _code
    else:
        codes, spelled = {who: array[spot.span] for who, array in lines.items()}, partial(_scale, format=field.format)
    body = []
    for i in range(len(raw)):
        theirs = {who: spelled(found[i]) for who, found in codes.items()}
        body.append(StepRow((str(i), _float(raw[i])), next(iter(theirs.values())), theirs))
    return [Section(("field",), head), Section(("i", "x"), body)]


def _entries(spot: _Spot) -> list[Section]:
    """The section with the entries of the element's block, for a recipe without known steps."""
    field = spot.fields[spot.name]
    if len(field.shape) == 1:
        return [_elements(spot, [(min(spot.line, field.shape[0] - 1),)])]
    length = (field.valid or field.shape)[1]
    width = field.block[0 if field.transposed else 1]
    columns = sorted({min(place // width, length - 1) for place in range(spot.span.start, spot.span.stop)})
    return [_elements(spot, [(spot.line, column) for column in columns])]


def _elements(spot: _Spot, places: Sequence[tuple[int, ...]]) -> Section:
    """Entries of the field, by their compact indices."""
    arrays = spot.ask(spot.name)
    interval = next((value for value in arrays.values() if isinstance(value, Interval)), None)
    kernel, rows = arrays.get("kernel"), []
    for index in places:
        texts, inside = {who: _spelled(array, index) for who, array in arrays.items()}, ()
        nearest = None if interval is None or kernel is None else order(interval.nearest(kernel))[index]
        if nearest is not None and nearest == order(kernel)[index]:
            inside = ("kernel",)
        rows.append(StepRow((spot.name, str(list(index))), next(iter(texts.values())), texts, inside))
    return Section(("entry", "compact index"), rows)


def _spelled(value: Demand, index: tuple[int, ...]) -> str:
    if isinstance(value, Interval):
        ends = f"{_entry(value.low[index])} to {_entry(value.high[index])}"
        return ends if value.ordered is None else f"{ends}, in Hopper's order {_entry(value.ordered[index])}"
    return _entry(value[index])


def _product(spot: _Spot, case: Case, inputs: Mapping[str, np.ndarray]) -> Section:
    """The section for the sum of a GEMM's element; of many blocks only the first and the last are shown."""
    found, form = terms(case, inputs, *spot.at), case.scale_format
    shown = found if len(found) <= _MOST_TERMS else [*found[: _MOST_TERMS // 2], *found[-_MOST_TERMS // 2 :]]
    rows = [
        StepRow(
            (str(t.block), *(_scale(byte, form) for byte in (t.a_scale, t.b_scale)), _float(t.dot), _float(t.product)),
            _float(t.acc),
            {},
        )
        for t in shown
    ]
    return Section(("block", "scale of A", "scale of B", "dot 10.1", "p 10.1"), rows)


def _granule(amax: np.ndarray, spot: _Spot) -> np.generic:
    if amax.shape == (1,):
        return amax[0]
    return amax[spot.line] if amax.ndim == 1 else amax[spot.line, spot.span.start // 64]


def _float(value: np.generic) -> str:
    return f"{float(value):.9g}"


def _scale(byte: np.generic, format: str = "") -> str:
    return f"0x{int(byte):02X} {VALUES[format or 'e4m3'][byte]:g}"


def _code(code: np.generic) -> str:
    return f"{int(code):X} {E2M1_VALUES[code]:g}"


def _entry(value: np.generic) -> str:
    bits = int.from_bytes(value.tobytes(), "little")
    spelled = f"0x{bits:0{2 * value.dtype.itemsize}X}"
    return spelled if value.dtype == np.uint8 else f"{spelled} {float(value):.6g}"
