"""Handshakes: a right pair passes, and each way to misunderstand an array is found, for its own reason, and mended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from harness.cli import main
from harness.device.emulator import EmulatorDevice
from harness.errors import UsageError
from harness.subjects.card.code import Code, read_code
from harness.subjects.handshake import poison
from harness.subjects.handshake.pair import read_pair
from harness.subjects.handshake.verify import Handshake, Handshaker, require_agreement
from harness.verdict import Verdict

SOURCE = Path(__file__).with_name("handshakes.cu")
TILES = {"direction": "rowwise", "to": "swizzled"}
ROWS = {"direction": "rowwise", "to": "compact"}
ROWWISE = {"outputs": "rowwise", "dtype": "bf16"}
LINES = ({"i32": "rows"}, {"i32": "cols // 16"})
LEFT = {"swizzled_scale_inv": {"padding": "anything"}}
AMAX = "per_tensor_amax<bf16>"
_E4M3 = "Block::block_1x16, Rounding::rne, ScaleLayout::compact, false, ScaleFormat::e4m3, true"
ENCODE = f"per_tensor_encode_rowwise<bf16, {_E4M3}>"


@cache
def built() -> Code:
    """Compiled once, since it is the same for all."""
    return read_code(SOURCE, "own.cu", [AMAX, ENCODE], "sm_100a", ())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("own.ptx").write_text(built().ptx)
    return tmp_path


def launch(kernel: str, *arguments: object, **more: object) -> dict[str, object]:
    """A card's launch of one block of 128 threads; an argument that is a plain word names an array."""
    taken = [each if isinstance(each, Mapping) else {"array": each} for each in arguments]
    return {"kernel": built().symbols.get(kernel, kernel), "block": 128, "arguments": taken, **more}


def write(name: str, said: Mapping) -> None:
    """Write a mapping to a file as YAML, a line for each key."""
    Path(name).write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in said.items()))


def card(name: str, recipe: str, flags: Mapping, *launches: Mapping, **more: object) -> dict[str, object]:
    """A side that is a card, which is written."""
    said = {"code": "own.ptx", "recipe": recipe, "flags": dict(flags), **more, "launches": list(launches)}
    write(f"{name}.yaml", said)
    return {"card": f"{name}.yaml"}


def tile(written: int = 3, **more: object) -> dict[str, object]:
    return card("tile", "swizzle", TILES, launch("tile", "scale_inv", "swizzled_scale_inv", *LINES, {"i32": written}),
                **more)  # fmt: skip


def untile(whole: int = 1, linear: int = 0, kernel: str = "untile", **more: object) -> dict[str, object]:
    said = ({"i32": whole}, {"i32": linear}) if kernel == "untile" else ()
    return card("untile", "swizzle", ROWS, launch(kernel, "swizzled_scale_inv", "scale_inv", *LINES, *said), **more)


def quantize(*after: Mapping, rows: str = "rows", amax_rows: str = "rows", **more: object) -> dict[str, object]:
    amax = launch(AMAX, "input", "rowwise_amax", {"u64": 0}, "amax_state", {"i32": amax_rows},
                  {"i32": "cols"}, grid=3)  # fmt: skip
    encode = launch(
        ENCODE, "input", "rowwise_amax", "rowwise_data", "rowwise_scale_inv", {"i32": rows}, {"i32": "cols"},
        {"u64": "seed"}, {"u32": "offset"}, grid=["(cols + 511) // 512", f"({rows} + 127) // 128 * 4"],
    )  # fmt: skip
    return card("quantize", "per_tensor", ROWWISE, amax | {"block": 256}, encode | {"block": 256}, *after,
                scratch={"amax_state": 16}, **more)  # fmt: skip


def decode(
    form: int = 0, largest: float = 448, high: int = 0, flags: Mapping = {}, **more: object
) -> dict[str, object]:
    words = {"i32": "rows"}, {"i32": "cols"}, {"i32": form}, {"f32": float(largest)}, {"i32": high}
    return card("decode", "dequantize", {**ROWWISE, **flags},
                launch("decode", "data", "scale_inv", "amax", "output", *words), **more)  # fmt: skip


def shaken(producer: Mapping, consumer: Mapping, shape: str = "48x80", **more: object) -> Handshake:
    said = {"producer": dict(producer), "consumer": dict(consumer), "shapes": [shape], **more}
    write("pair.yaml", said)
    pair = read_pair("pair.yaml")
    require_agreement(pair)
    (case,) = pair.cases()
    return Handshaker(pair, EmulatorDevice()).shake(*case)


def right(found: Handshake) -> None:
    assert found.verdict.right and found.blamed == "" and found.story == "", found.story


def wrong(found: Handshake, blamed: str, verdict: Verdict, *sentences: str) -> None:
    assert (found.blamed, found.verdict) == (blamed, verdict), found.story
    for sentence in sentences:
        assert sentence in found.story
    assert "\ntrace " not in found.story and "\nreproduce " not in found.story, "the command adds its own"


def refused(producer: Mapping, consumer: Mapping, *sentences: str, **more: object) -> None:
    with pytest.raises(UsageError) as caught:
        shaken(producer, consumer, **more)
    for sentence in (*sentences, "before anything runs"):
        assert sentence in str(caught.value)


# Approximate instructions


@pytest.mark.parametrize("blamed", ["producer", "consumer"])
@pytest.mark.parametrize("shows", [0, 1])
def test_a_side_that_depends_on_an_approximate_instruction(blamed: str, shows: int):
    side = card("tile", "swizzle", TILES,
                launch("tile_by_power", "scale_inv", "swizzled_scale_inv", *LINES, {"i32": shows}))  # fmt: skip
    quantized = {"recipe": "per_tensor", "flags": {"outputs": "rowwise"}}
    found = shaken(side, untile()) if blamed == "producer" else shaken(quantized, side)
    if not shows:
        right(found)
        return
    line = next(n for n, text in enumerate(SOURCE.read_text().splitlines(), 1) if "ex2.approx" in text)
    cause = f"PTX leaves the last bits of ex2.approx.f32 at handshakes.cu:{line} open"
    nearest = "with the nearest value in every order (ascending, descending, drawn), 0 of 1,024 bytes differ"
    wrong(found, blamed, Verdict.NONDETERMINISTIC, cause, f"nearest   {nearest}")
    result = found.consumer or found.producer
    assert result.second_opinion["differing"] == 0


# Layout


def test_a_right_pair_of_cards_passes():
    found = shaken(tile(), untile())
    right(found)
    assert found.poisoned == 0 and found.producer.bytes_compared == 128 * 8


def test_either_side_may_be_ours():
    right(shaken({"recipe": "per_tensor", "flags": {"outputs": "rowwise"}}, tile()))
    right(shaken(tile(), {"recipe": "swizzle", "flags": {"to": "compact"}}))
    found = shaken(tile(), {"recipe": "gemm", "flags": {"a_scale_layout": "swizzled"}}, "48x80x32")
    right(found)


def test_tiles_that_are_read_as_rows_though_both_say_tiles():
    wrong(shaken(tile(), untile(linear=1)), "consumer", Verdict.MISMATCH, "scale_inv")
    right(shaken(tile(), untile()))


def test_rows_that_are_written_though_both_say_tiles():
    rows = launch("untile", "scale_inv", "swizzled_scale_inv", *LINES, {"i32": 1}, {"i32": 1})
    found = shaken(card("tile", "swizzle", TILES, rows), untile())
    wrong(found, "producer", Verdict.MISMATCH, "swizzled_scale_inv")
    assert found.consumer is None


def test_layouts_that_differ_are_refused_before_anything_runs():
    tiles = {"scale_inv": {"layout": "swizzled"}}
    refused(quantize(), decode(arrays=tiles), "decode.yaml:4: the consumer decode.yaml takes scale_inv with ",
            "promises rowwise_scale_inv with layout: compact (quantize.yaml:2)")  # fmt: skip
    right(shaken(quantize(), decode()))


# Padding


def test_padding_that_is_left_and_read():
    """`zeros` became `empty`."""
    left = tile(written=0, arrays=LEFT)
    refused(left, untile(), "padding: written", "padding: anything", "(tile.yaml:4)")
    found = shaken(left, untile(arrays=LEFT))
    wrong(found, "consumer", Verdict.UNWRITTEN, "the producer's swizzled_scale_inv: padding, entry [",
          "read      handshakes.cu:", "reads 1 bytes at byte")  # fmt: skip
    line = int(found.story.partition("handshakes.cu:")[2].partition(":")[0])
    assert "in[linear ? i : tiled" in SOURCE.read_text().splitlines()[line - 1]
    right(shaken(left, untile(whole=0, arrays={**LEFT, "scale_inv": {"padding": "anything"}})))
    right(shaken(tile(), untile()))


def test_a_stale_padded_column():
    """The rows are zeros and the columns are what was there before."""
    wrong(shaken(tile(written=1), untile()), "producer", Verdict.UNWRITTEN, "swizzled_scale_inv")
    wrong(shaken(tile(written=1, arrays=LEFT), untile(arrays=LEFT)), "consumer", Verdict.UNWRITTEN, "padding, entry")
    right(shaken(tile(), untile()))
    right(shaken(tile(written=1), untile(), "48x128"))  # no padded column


def test_padding_that_is_loaded_and_not_used_is_no_fault_unless_it_is_declared_so():
    arrays = {**LEFT, "scale_inv": {"padding": "anything"}}
    left = tile(written=0, arrays=LEFT)
    right(shaken(left, untile(kernel="untile_by_four", arrays=arrays)))
    strict = {**arrays, "swizzled_scale_inv": {"padding": "anything", "reads": "promised"}}
    wrong(shaken(left, untile(kernel="untile_by_four", arrays=strict)), "consumer", Verdict.UNWRITTEN,
          "`reads: promised`", "reads 4 bytes")  # fmt: skip
    right(shaken(left, untile(whole=0, arrays=strict)))


def test_padding_that_is_not_there():
    absent = {"scale_inv": {"padding": "absent"}}
    dense = launch("untile_dense", "swizzled_scale_inv", "scale_inv", *LINES)

    def from_dense(stride: str, **more: object) -> dict[str, object]:
        return card("tile", "swizzle", TILES, launch("tile_dense", "scale_inv", "swizzled_scale_inv", *LINES,
                                                     {"i32": stride}), **more)  # fmt: skip

    producer = card("untile", "swizzle", ROWS, dense, arrays=absent)
    right(shaken(producer, from_dense("cols // 16", arrays=absent)))
    refused(producer, from_dense("cols // 16"), "padding: written", "padding: absent")
    refused(untile(), from_dense("cols // 16", arrays=absent), "padding: absent", "padding: written")
    producer = card("untile", "swizzle", ROWS, dense, arrays=absent)
    found = shaken(producer, from_dense("(cols // 16 + 3) // 4 * 4", arrays=absent))
    wrong(found, "consumer", Verdict.OUT_OF_BOUNDS, "handshakes.cu:")
    wrong(shaken(untile(arrays=absent), from_dense("cols // 16", arrays=absent)), "producer", Verdict.OUT_OF_BOUNDS)


def test_padding_that_the_producer_writes_and_the_consumer_says_it_does_not_need():
    wrong(shaken(tile(), untile(arrays=LEFT)), "consumer", Verdict.UNWRITTEN, "padding, entry")


def test_our_kernels_do_not_read_what_a_pair_says_they_do_not_need():
    free = {"scale_inv": {"padding": "anything"}}
    ours = {"recipe": "dequantize"}
    found = shaken(quantize(), {**ours, "arrays": free})
    right(found)
    assert found.poisoned == 128 * 8 - 48 * 5


@pytest.mark.slow
def test_our_gemm_needs_the_zeros_of_padded_columns():
    """Beyond 64 rows it multiplies them, even a NaN by codes of zero. Padded rows reach no row of the output."""
    gemm = {"recipe": "gemm", "arrays": {"a_scale_inv": {"padding": "anything"}}}
    wrong(
        shaken(quantize(), gemm, "80x80x32"), "consumer", Verdict.UNWRITTEN, "a_scale_inv", "padding, entry [", "read "
    )
    right(shaken(quantize(), gemm, "80x64x32"))


# Masked rows

MASKED = {"masked_rows": 32}


def test_a_producer_that_takes_an_amax_over_masked_rows():
    consumer = card("decode", "dequantize", ROWWISE,
                    launch("decode_as_masked", "data", "scale_inv", "amax", "output", "masked_m", {"i32": "cols"}),
                    arrays={"scale_inv": {"padding": "anything"}})  # fmt: skip
    found = shaken(quantize(rows="allocated_rows", amax_rows="allocated_rows"), consumer, **MASKED)
    wrong(found, "producer", Verdict.UNWRITTEN, "array     input: masked rows", "read      tensor_amax.cuh:")
    found = shaken(quantize(rows="allocated_rows"), consumer, **MASKED)
    right(found)
    assert found.poisoned == 2 * 32 * 80 + 32 * 40 + (128 * 8 - 48 * 5)


def test_a_consumer_that_takes_an_amax_over_masked_rows():
    producer = card(
        "decode",
        "dequantize",
        ROWWISE,
        launch("decode_as_masked", "data", "scale_inv", "amax", "output", "masked_m", {"i32": "cols"}),
    )
    found = shaken(producer, quantize(rows="allocated_rows", amax_rows="allocated_rows"), **MASKED)
    wrong(found, "consumer", Verdict.UNWRITTEN, "array     input, the producer's output: masked rows, entry [48, 0]",
          "read      tensor_amax.cuh:")  # fmt: skip
    right(shaken(producer, quantize(rows="allocated_rows"), **MASKED))
    demand = quantize(rows="allocated_rows", arrays={"input": {"masked": "zero"}})
    refused(producer, demand, "with masked: zero", "with masked: anything", **MASKED)


def test_masked_rows_that_are_zeros():
    """An amax over all rows is right, if it is told so and the producer keeps its word."""
    decoded = launch("decode_as_masked", "data", "scale_inv", "amax", "output", "masked_m", {"i32": "cols"})
    zeros, needs = {"output": {"masked": "zero"}}, {"input": {"masked": "zero"}}
    whole = {"rows": "allocated_rows", "amax_rows": "allocated_rows"}
    producer = card("decode", "dequantize", ROWWISE, {"zero": "output"}, decoded, arrays=zeros)
    right(shaken(producer, quantize(**whole, arrays=needs), **MASKED))
    wrong(shaken(producer, quantize(**whole), **MASKED), "consumer", Verdict.UNWRITTEN, "masked rows, entry [48, 0]")
    producer = card("decode", "dequantize", ROWWISE, decoded, arrays=zeros)
    wrong(shaken(producer, quantize(**whole, arrays=needs), **MASKED), "producer", Verdict.UNWRITTEN,
          "5120 of 5120 bytes of the masked rows of output are not zero, as is promised")  # fmt: skip


def test_our_own_kernels_know_no_masked_rows():
    with pytest.raises(
        UsageError, match=r"pair.yaml:\d+: kernels of the harness know no masked rows, and the consumer"
    ):
        shaken(quantize(), {"recipe": "dequantize"}, **MASKED)
    with pytest.raises(UsageError, match="masked rows lie behind the rows of one tensor"):
        columns = card("tile", "swizzle", {**TILES, "direction": "columnwise"},
                       launch("tile", "scale_inv", "swizzled_scale_inv", *LINES, {"i32": 3}))  # fmt: skip
        shaken(columns, untile(), reads={"swizzled_scale_inv": "swizzled_scale_inv"}, **MASKED)


# Scale conventions


AS_ENCODE = {"rowwise_amax": {"form": "encode"}}


def test_an_amax_in_another_form():
    as_encode, declared = launch("as_encode", "rowwise_amax"), {"amax": {"form": "encode"}}
    refused(
        quantize(), decode(arrays=declared), "amax with form: encode", "rowwise_amax with form: amax (quantize.yaml:"
    )
    wrong(shaken(quantize(arrays=AS_ENCODE), decode(arrays=declared)), "producer", Verdict.MISMATCH, "rowwise_amax")
    producer = quantize(as_encode, arrays=AS_ENCODE)
    refused(producer, decode(), "form: amax", "form: encode")
    refused(producer, decode(arrays={"amax": {"form": "decode"}}), "form: decode", "form: encode")
    wrong(shaken(producer, decode(form=2, arrays=declared)), "consumer", Verdict.MISMATCH, "output")
    # An amax of 10.5 gives a scale of 256, so that a quotient is what the product rounds to.
    x = np.random.default_rng(0).normal(size=(48, 80)).astype(ml_dtypes.bfloat16)
    x[3, 5] = 10.5
    save_file({"x": x}, "x.safetensors")
    right(shaken(producer, decode(form=1, arrays=declared), inputs=[f"file:{Path('x.safetensors').resolve()}#x"]))


def test_scales_up_to_256_and_448():
    ours = {"recipe": "four_over_six", "flags": {"outputs": "rowwise", "e4m3_max": 256}}
    refused(ours, decode(), "scale_inv with e4m3_max: 448", "e4m3_max: 256 (pair.yaml:")
    reduced = {"e4m3_max": 256}
    wrong(shaken(ours, decode(flags=reduced)), "consumer", Verdict.MISMATCH, "output")
    right(shaken(ours, decode(flags=reduced, largest=256)))


def test_the_order_of_nibbles():
    swap = launch("swap_nibbles", "rowwise_data", {"i32": "elements // 2"})
    high = {"rowwise_data": {"nibbles": "high"}}
    refused(quantize(swap, arrays=high), decode(), "data with nibbles: low", "nibbles: high")
    read = {"data": {"nibbles": "high"}}
    wrong(shaken(quantize(swap, arrays=high), decode(arrays=read)), "consumer", Verdict.MISMATCH)
    wrong(shaken(quantize(arrays=high), decode(high=1, arrays=read)), "producer", Verdict.MISMATCH)
    right(shaken(quantize(swap, arrays=high), decode(high=1, arrays=read)))


def test_the_sign_of_zero():
    drop = launch("drop_signs_of_zeros", "rowwise_data", {"i32": "elements // 2"})
    unsigned, signed = {"rowwise_data": {"zeros": "unsigned"}}, {"data": {"zeros": "signed"}}
    refused(quantize(drop, arrays=unsigned), decode(arrays=signed), "data with zeros: signed", "zeros: unsigned")
    refused(quantize(drop, conventions=["sign of zero"]), decode(arrays=signed), "zeros: any")
    wrong(shaken(quantize(drop), decode(arrays=signed)), "producer", Verdict.MISMATCH)
    right(shaken(quantize(drop, arrays=unsigned), decode()))
    found = shaken(quantize(drop, conventions=["sign of zero"]), decode())
    right(found)
    assert found.verdict is Verdict.CONVENTION and "sign of zero" in found.producer.reason


def test_what_the_producer_does_not_write_is_no_part_of_a_handshake():
    with pytest.raises(
        UsageError, match=r"quantize.yaml:5: the producer is given 'rowwise_amax', which is amax of the"
    ):
        shaken(quantize(given=["rowwise_amax"]), decode())


# Groups


def test_a_wrong_offset_of_an_expert():
    """Every expert beyond the first, where its padded scales are wider than its own."""

    def group(padded: int) -> dict[str, object]:
        words = {"i32": "num_tensors"}, {"i32": "cols // 16"}, {"i32": padded}
        return card("group", "swizzle_grouped", {**ROWS, "shape_representation": "varying_first_dim"},
                    launch("untile_group", "swizzled_scale_inv", "scale_inv", "first_dims", *words))  # fmt: skip

    ours, shape = {"recipe": "swizzle_grouped"}, "128+256x144"
    found = shaken(ours, group(0), shape)
    wrong(found, "consumer", Verdict.MISMATCH, "tensor", "scale_inv")
    right(shaken(ours, group(1), shape))
    right(shaken(ours, group(0), "128+256x128"))  # no padding, so that both are the same


@pytest.mark.slow
def test_groups_of_ours():
    grouped = {"recipe": "grouped", "flags": {"recipe": "per_tensor", "outputs": "rowwise"}}
    right(shaken(grouped, {"recipe": "swizzle_grouped"}, "128+256x144"))
    refused(grouped, {"recipe": "gemm_grouped", "flags": {"a_scale_layout": "swizzled"}}, "layout: swizzled",
            shape="128+256x144x32")  # fmt: skip
    found = shaken(grouped, {"recipe": "gemm_grouped", "arrays": {"a_scale_inv": {"padding": "anything"}}},
                   "128+256x144x32")  # fmt: skip
    wrong(found, "consumer", Verdict.UNWRITTEN, "padding of tensor 0, entry [0, 9]")
    with pytest.raises(UsageError, match="of a product of groups, a pair has the rows of operand A"):
        shaken(grouped, {"recipe": "gemm_grouped"}, "128+256x144x32", reads={"b_data": "rowwise_data"})


def test_poisoned_bytes_that_are_alike_hide_no_reader(monkeypatch: pytest.MonkeyPatch):
    """One that only compares padding with padding."""
    compares = launch("untile_if_alike", "swizzled_scale_inv", "scale_inv", *LINES)
    arrays = {**LEFT, "scale_inv": {"padding": "anything"}}
    reader = card("untile", "swizzle", ROWS, compares, arrays=arrays)
    found = shaken(tile(written=0, arrays=LEFT), reader)
    wrong(found, "consumer", Verdict.UNWRITTEN, "with random bytes", "padding, entry [")
    monkeypatch.setattr(poison, "FILLS", poison.FILLS[:-1])
    right(shaken(tile(written=0, arrays=LEFT), reader))


def test_each_filling_is_of_use(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(poison, "FILLS", ())
    right(shaken(tile(written=0, arrays=LEFT), untile(arrays=LEFT)))


# Files


@pytest.mark.parametrize(
    "old, new, sentence",
    [
        ("producer:", "producers:", "unknown key 'producers'; did you mean 'producer'?"),
        ("card: tile.yaml", "cards: tile.yaml", "pair.yaml:1: unknown key 'cards'; did you mean 'card'?"),
        ("card: tile.yaml", "card: tiles.yaml", "tiles.yaml:1: the file cannot be read: No such file"),
        ("card: tile.yaml", "recipe: tile", "pair.yaml:1: there is no recipe 'tile'"),
        ("card: tile.yaml", "recipe: forward", "pair.yaml:1: forward is a pipeline"),
        ("card: tile.yaml", "card: tile.yaml, recipe: swizzle", "either the key 'card' or the key 'recipe'"),
        ("card: tile.yaml", "recipe: swizzle, flags: {too: swizzled}", "swizzle has no flag 'too'"),
        ("card: tile.yaml", "recipe: swizzle, arrays: {swizzled_scale_inv: {layout: compact}}", "what may be declared"),
        ("card: tile.yaml", "recipe: swizzle, arrays: {scale: {padding: anything}}", "swizzle has no array 'scale'"),
        ("card: tile.yaml", "recipe: gemm", "pair.yaml:1: gemm/default/48x80/normal/eager"),
        ("card: tile.yaml", "recipe: casts", "say under `reads` which is which"),
        ("card: tile.yaml", "card: tile.yaml, flags: {direction: columnwise}", "the card is for direction=rowwise"),
        ("48x80", "48x81", "48x81"),
        ("[48x80]", "[[48, 81]]", "48x81"),
        ("[48x80]", "[48]", "shapes"),
        ("shapes: [48x80]", "inputs: [normal]", "lacks the key 'shapes'"),
        ("shapes:", "inputs: [nosuch]\nshapes:", "nosuch"),
        ("shapes:", "reads: {swizzled: swizzled_scale_inv}\nshapes:", "pair.yaml:3: swizzle reads no 'swizzled'; did"),
        ("shapes:", "reads: {swizzled_scale_inv: scales}\nshapes:", "swizzle writes no 'scales'"),
        ("shapes:", "masked_rows: -1\nshapes:", "pair.yaml:3: masked_rows"),
    ],
)
def test_a_mistake_in_a_pair_is_one_sentence(old: str, new: str, sentence: str):
    tile(), untile()
    text = "producer: {card: tile.yaml}\nconsumer: {card: untile.yaml}\nshapes: [48x80]\n"
    assert text.count(old) == 1
    Path("pair.yaml").write_text(text.replace(old, new))
    with pytest.raises(UsageError) as caught:
        require_agreement(read_pair("pair.yaml"))
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_the_command_exits_as_the_worst_case_and_names_the_one_to_blame(capsys: pytest.CaptureFixture):
    def run(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["handshake", "pair.yaml", "--device", "emulator", *words])
        said = capsys.readouterr()
        return ended.value.code, said.out + said.err

    tile(), untile(linear=1)
    Path("pair.yaml").write_text("producer: {card: tile.yaml}\nconsumer: {card: untile.yaml}\nshapes: [48x80, 16x16]\n")
    code, said = run()
    assert code == 1 and said.count("blamed    the consumer, untile.yaml") == 2
    assert "│ 48x80/normal │ PASS     │ MISMATCH │" in said
    assert run("--case", "48x80")[0] == 64
    untile()
    assert run("--case", "16x16/normal")[0] == 0
    untile(arrays={"swizzled_scale_inv": {"layout": "compact"}})
    code, said = run()
    assert code == 64 and said.count("\n") == 1 and "with layout: swizzled (tile.yaml:2)" in said


def test_a_card_alone_is_judged_by_what_it_promises():
    """This takes the way of `harness verify`, with one card and no peer."""
    from harness.subjects.card.card import read_card
    from harness.subjects.card.device import with_card
    from harness.subjects.card.verify import verify_card
    from harness.suite.suite import find_case

    def judged(case: str) -> tuple[Verdict, str]:
        found = read_card("tile.yaml")
        found.check([find_case(case)])
        result = verify_card(find_case(case), with_card(EmulatorDevice(), found))
        return result.verdict, result.reason

    tile(written=0)
    assert judged("swizzle/default/48x80/normal/eager")[0] is Verdict.UNWRITTEN
    tile(written=0, arrays=LEFT)
    said = judged("swizzle/default/48x80/normal/eager")
    assert said == (Verdict.CONVENTION, "padding: 784 bytes of swizzled_scale_inv are anything")
