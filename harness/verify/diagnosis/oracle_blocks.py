"""How each wrong way to do a step takes the place of functions of `harness.oracles.nvfp4`, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np

from harness.verify.diagnosis import casts, other_products
from harness.verify.diagnosis.casts import Way

_SIXTH = np.float32(1) / np.float32(6)

Blocks = dict[str, Callable[..., np.ndarray]]
Ways = Callable[[ModuleType], Blocks]


def cast_of(cast: Callable, nvfp4: ModuleType) -> Blocks:
    return {"e2m1": lambda v: cast(np.asarray(v, np.float32))}


def _scale_cast(name: str, cast: Callable, nvfp4: ModuleType) -> Blocks:
    return {name: lambda v: cast(np.asarray(v, np.float32))}


def _scale_product(product: Callable, nvfp4: ModuleType) -> Blocks:
    """Also of an oracle that writes `amax * (1/6)` or `amax / 6` itself, which is known by its values."""
    seen, right, block_amax = SimpleNamespace(amax=None), nvfp4.e4m3, nvfp4.block_amax

    def amax_of(v: np.ndarray) -> np.ndarray:
        seen.amax = block_amax(v)
        return seen.amax

    def cast(v: np.ndarray) -> np.ndarray:
        one = np.float32(1)
        if seen.amax is None or seen.amax.shape != v.shape:
            return right(v)
        inlined = _equal(v, seen.amax * _SIXTH) or _equal(v, seen.amax / np.float32(6))
        return right(product(seen.amax, one) if inlined else v)

    return {
        "scale_inv_multiply": lambda amax, s_enc: right(np.fmin(product(amax, s_enc), nvfp4.FLT_MAX)),
        "scale_base_divide": product,
        "block_amax": amax_of,
        "e4m3": cast,
    }


def _multiplier(kind: str, multiplier: Callable, nvfp4: ModuleType) -> Blocks:
    seen, encode = SimpleNamespace(s=None), nvfp4.global_encode_scale

    def s_enc(amax: np.ndarray, *e4m3_max: int) -> np.ndarray:
        seen.s = encode(amax, *e4m3_max)
        return seen.s

    def of(scale_inv: np.ndarray, given: np.ndarray) -> np.ndarray:
        s, d = (seen.s, given) if kind == "reciprocal" else (given, np.float32(1) / given)
        return np.asarray(multiplier(nvfp4.decode_e4m3(scale_inv), s, d), np.float32)

    return {"global_encode_scale": s_enc, f"multiplier_{kind}": of}


def _product(product: Callable, nvfp4: ModuleType) -> Blocks:
    """Also of an oracle that multiplies by `1 / scale` itself, which is known by its values."""
    seen = SimpleNamespace(s=None, d=None, scale=None, x=None)
    encode, decode, value_of = nvfp4.global_encode_scale, nvfp4.global_decode_scale, nvfp4.decode_e4m3
    kinds, cast, block_amax = ("reciprocal", "direct", "fast"), nvfp4.e2m1, nvfp4.block_amax

    def s_enc(amax: np.ndarray, *e4m3_max: int) -> np.ndarray:
        seen.s = encode(amax, *e4m3_max)
        seen.d = decode(seen.s)
        return seen.s

    def recorded(right: Callable, scale_inv: np.ndarray, given: np.ndarray) -> np.ndarray:
        seen.scale = value_of(scale_inv)
        return right(scale_inv, given)

    def scaled(v: np.ndarray, m: np.ndarray) -> np.ndarray:
        s, d = (np.broadcast_to(each, m.shape)[..., None] for each in (seen.s, seen.d))
        blocks = v.reshape(*m.shape, nvfp4.BLOCK)
        made = product(blocks, seen.scale[..., None], s, d, m[..., None])
        zero = (seen.scale == 0)[..., None]
        return np.where(zero, blocks * m[..., None], made).astype(np.float32).reshape(v.shape)

    def decoded(byte: np.ndarray) -> np.ndarray:
        seen.scale = value_of(byte)
        return seen.scale

    def amax_of(v: np.ndarray) -> np.ndarray:
        seen.x = v
        return block_amax(v)

    def codes(v: np.ndarray) -> np.ndarray:
        if seen.s is not None or seen.x is None or seen.scale is None or v.shape != seen.x.shape:
            return cast(v)
        if seen.scale.shape != (*v.shape[:-1], v.shape[-1] // nvfp4.BLOCK):
            return cast(v)
        one, x, scale = np.float32(1), seen.x.reshape(*seen.scale.shape, nvfp4.BLOCK), seen.scale[..., None]
        plain = np.where(scale == 0, np.float32(0), one / scale)
        if not _equal(v, (x * plain).reshape(v.shape)):
            return cast(v)
        made = np.where(scale == 0, x * plain, product(x, scale, one, one, plain))
        return cast(made.astype(np.float32).reshape(v.shape))

    multipliers = {f"multiplier_{kind}": partial(recorded, getattr(nvfp4, f"multiplier_{kind}")) for kind in kinds}
    inlined = {"decode_e4m3": decoded, "block_amax": amax_of, "e2m1": codes}
    return {"global_encode_scale": s_enc, "scaled": scaled, **multipliers, **inlined}


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=True)


def _encode_scale(s_enc: Callable, nvfp4: ModuleType) -> Blocks:
    return {"global_encode_scale": lambda amax, e4m3_max=nvfp4.E4M3_MAX: s_enc(amax, e4m3_max)}


def _decode_scale(s_dec: Callable, nvfp4: ModuleType) -> Blocks:
    seen, encode = SimpleNamespace(), nvfp4.global_encode_scale

    def s_enc(amax: np.ndarray, e4m3_max: int = nvfp4.E4M3_MAX) -> np.ndarray:
        seen.amax, seen.e4m3_max = amax, np.float32(e4m3_max)
        return encode(amax, e4m3_max)

    return {"global_encode_scale": s_enc, "global_decode_scale": lambda s: s_dec(seen.amax, s, seen.e4m3_max)}


def _block_amax(amax: Callable, alone: bool, nvfp4: ModuleType) -> Blocks:
    """alone: whether the amaxes of windows, which are made of the blocks', stay right"""
    right, tile, window = nvfp4.block_amax, nvfp4.tile_amax, nvfp4.window_amax

    def of_blocks(v: np.ndarray) -> np.ndarray:
        return amax(nvfp4._magnitudes(v).reshape(len(v), -1, nvfp4.BLOCK))

    def of_windows(v: np.ndarray) -> np.ndarray:
        return nvfp4.amax(right(v).reshape(len(v), -1, nvfp4.WINDOW // nvfp4.BLOCK), axis=2)

    return {"block_amax": of_blocks, "tile_amax": tile, "window_amax": of_windows if alone else window}


def _moved_amax(move: Callable[[np.ndarray], np.ndarray], nvfp4: ModuleType) -> Blocks:
    blocks, tiles = nvfp4.block_amax, nvfp4.tile_amax
    return {"block_amax": lambda v: move(blocks(v)), "tile_amax": lambda v: move(tiles(v))}


def _without_abs(of: str, nvfp4: ModuleType) -> Blocks:
    """of: `all` amaxes, `blocks` or `granules`"""

    def positive(v: np.ndarray) -> np.ndarray:
        return np.where(v > 0, v, 0).astype(v.dtype)

    def of_blocks(v: np.ndarray) -> np.ndarray:
        return positive(v).reshape(len(v), -1, nvfp4.BLOCK).max(axis=2)

    if of == "all":
        return {"_magnitudes": positive}
    if of == "blocks":
        return {"block_amax": of_blocks}
    amax = nvfp4.amax
    return {
        "amax": lambda v, axis=None: amax(positive(v), axis),
        "line_amax": lambda v: amax(positive(v), 1),
        "window_amax": lambda v: amax(of_blocks(v).reshape(len(v), -1, nvfp4.WINDOW // nvfp4.BLOCK), 2),
    }


def _tiles_for_blocks(nvfp4: ModuleType) -> Blocks:
    blocks = nvfp4.block_amax

    def of_tiles(v: np.ndarray) -> np.ndarray:
        found = blocks(v)
        return np.repeat(found.reshape(-1, nvfp4.BLOCK, found.shape[1]).max(axis=1), nvfp4.BLOCK, axis=0)

    return {"block_amax": of_tiles}


def _blocks_for_tiles(nvfp4: ModuleType) -> Blocks:
    return {"tile_amax": nvfp4.block_amax}


def _exchanged(distance: int, axis: int) -> Callable[[np.ndarray], np.ndarray]:
    def move(amax: np.ndarray) -> np.ndarray:
        places = np.arange(amax.shape[axis])
        return np.take(amax, np.where(places ^ distance < places.size, places ^ distance, places), axis)

    return move


_MIXED = "1x16 and 16x16 blocks mixed up", "the other block shape gives these bytes"
_ABS = "amax without abs", "negative values were left out of an amax"
_OTHER_BLOCK = "amax of another block"
_FORMS = (*other_products.SCALE_PRODUCTS, other_products.MULTIPLY_FORM, other_products.DIVIDE_FORM)
_OF_SCALES: tuple[tuple[Way, Ways], ...] = (
    *((way, partial(_scale_product, way.function)) for way in _FORMS),
    *(
        (way, partial(_block_amax, way.function, alone))
        for way in other_products.BLOCK_AMAXES
        for alone in (True, False)
    ),
    (Way(*_MIXED, None), _tiles_for_blocks),
    (Way(*_MIXED, None), _blocks_for_tiles),
    *(
        (Way(_OTHER_BLOCK, f"the amax of the block {apart:+d} away gives these bytes", None),
         partial(_moved_amax, lambda amax, apart=apart: np.roll(amax, -apart, axis=1)))
        for apart in (-4, -2, -1, 1, 2, 4)
    ),
    *(
        (Way(_OTHER_BLOCK, f"{of} {apart} apart have each other's block amax", None),
         partial(_moved_amax, _exchanged(apart, axis)))
        for axis, of in enumerate(("lines", "blocks"))
        for apart in (1, 2, 4, 8, 16)
    ),
)  # fmt: skip
_OF_OTHERS: dict[str, tuple[tuple[Way, Ways], ...]] = {
    "amax": tuple((Way(*_ABS, None), partial(_without_abs, of)) for of in ("all", "blocks", "granules")),
    "scale_inv": (),
    "S_enc": tuple((way, partial(_encode_scale, way.function)) for way in other_products.ENCODE_SCALES),
    "data": (
        *((way, partial(cast_of, way.function)) for way in casts.CODE_CASTS),
        *(
            (way, partial(_multiplier, kind, way.function))
            for kind, ways in other_products.MULTIPLIERS.items()
            for way in ways
        ),
        *((way, partial(_product, way.function)) for way in other_products.PRODUCTS),
        *((way, partial(_decode_scale, way.function)) for way in other_products.DECODE_SCALES),
    ),
}  # fmt: skip
# By the format of scales, and the first field that a way changes.
WAYS: dict[str, dict[str, tuple[tuple[Way, Ways], ...]]] = {
    name: _OF_OTHERS | {"scale_inv": (*((way, partial(_scale_cast, name, way.function)) for way in found), *_OF_SCALES)}
    for name, found in casts.SCALE_CASTS.items()
}
# The kinds of a root for which a way need not be asked: it does not change them, or it changes an earlier field.
UNMOVED = {"scale_inv": ("amax", "data"), "S_enc": ("amax",), "data": ("amax", "scale_inv")}
