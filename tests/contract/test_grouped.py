"""Shapes of groups: how they are read and printed, what they say of offsets, and a sentence for every illegal one."""

from __future__ import annotations

import numpy as np
import pytest

from harness.contract.group_arrays import from_arrays
from harness.contract.group_shape import MOST_TENSORS, GroupedShape, ShapeRepresentation
from harness.errors import ContractError

SAME, FIRST, LAST, BOTH = ShapeRepresentation


def shape(text: str) -> GroupedShape:
    return GroupedShape.parse(text)


# Reading and printing


@pytest.mark.parametrize(
    ("text", "tensors"),
    [
        ("128+0+256x512", [(128, 512), (0, 512), (256, 512)]),
        ("256x128+384", [(256, 128), (256, 384)]),
        ("128+256x512+128", [(128, 512), (256, 128)]),
        ("3*1024x2048", [(1024, 2048)] * 3),
        ("256x512", [(256, 512)]),
        ("0+0x512", [(0, 512)] * 2),
        ("128+128x256+384", [(128, 256), (128, 384)]),
    ],
)
def test_a_text_is_the_tensors_it_names(text: str, tensors: list[tuple[int, int]]):
    assert shape(text).tensors == tuple(tensors)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("128+0+256x512", "128+0+256x512"),
        ("256x128+384", "256x128+384"),
        ("128+256x512+128", "128+256x512+128"),
        ("128+128x256+384", "128x256+384"),
        ("8*1024x2048", "8*1024x2048"),
        ("1024x8*2048", "8*1024x2048"),
        ("8*1024x8*2048", "8*1024x2048"),
        ("128+128x512", "2*128x512"),
        ("2*128x256+384", "128x256+384"),
        ("1*256x512", "256x512"),
        ("0+0x512", "2*0x512"),
        ("0128x16", "128x16"),
    ],
)
def test_every_spelling_of_a_shape_prints_alike_and_reads_back(text: str, canonical: str):
    assert str(shape(text)) == canonical
    assert shape(canonical) == shape(text)


@pytest.mark.parametrize(
    "text", ["", "x", "128", "128x", "128x16x16", "128+x16", "-128x16", "a*2x16", "2*128+128x16", "128 x16", "٣x16"]
)
def test_what_is_no_shape_says_how_one_reads(text: str):
    with pytest.raises(ContractError, match=r"is not a grouped shape; one reads ROWSxCOLS .* 128\+0\+256x512"):
        shape(text)


def test_sides_must_list_as_many_tensors():
    with pytest.raises(ContractError, match="has 2 rows extents and 3 cols extents"):
        shape("128+128x16+16+16")
    with pytest.raises(ContractError, match="no tensor"):
        shape("0*128x16")


def test_a_number_of_tensors_no_memory_holds_is_read_and_refused():
    with pytest.raises(ContractError, match="tensor 64 is one too many"):
        shape("99999999999*128x128").require(SAME)


# What a shape says


def test_offsets_and_dims():
    group = shape("128+0+256x512")
    assert group.tensor_offsets.tolist() == [0, 128 * 512, 128 * 512, 384 * 512]
    assert group.first_dims.tolist() == [128, 0, 256]
    assert group.last_dims.tolist() == [512, 512, 512]
    assert {array.dtype for array in (group.tensor_offsets, group.first_dims, group.last_dims)} == {np.dtype(np.int64)}
    assert (len(group), group.elements) == (3, 384 * 512)


def test_offsets_beyond_32_bits():
    assert shape("3*65536x32768").tensor_offsets.tolist() == [0, 1 << 31, 2 << 31, 3 << 31]


@pytest.mark.parametrize(
    ("text", "representation", "logical"),
    [
        ("2*48x64", SAME, (96, 64)),
        ("128+0+256x512", FIRST, (384, 512)),
        ("256x128+384", LAST, (256, 512)),
        ("128+256x512+128", BOTH, (1, 128 * 512 + 256 * 128)),
        ("2*128x256", BOTH, (1, 2 * 128 * 256)),
    ],
)
def test_the_group_as_one_matrix(text: str, representation: str, logical: tuple[int, int]):
    assert shape(text).logical(representation) == logical
    assert np.prod(logical) == shape(text).elements
    shape(text).require(representation)


@pytest.mark.parametrize(
    ("text", "matrix"),
    [
        ("8*1024x2048", (8192, 2048)),
        ("128+0+256x512", (384, 512)),
        ("256x128+384", (1024, 128)),
        ("128+256x512+128", (768, 128)),
        ("2*0x512", (0, 512)),
        ("2*0x0", (0, 1)),
    ],
)
def test_a_dense_tensor_of_as_many_elements(text: str, matrix: tuple[int, int]):
    assert shape(text).matrix == matrix
    assert np.prod(matrix) == shape(text).elements


# What a representation allows

REFUSED = {
    "rows differ": ("128+256x512", LAST, 16, "tensor 1 has rows = 256 where tensor 0 has 128; in varying_last_dim"),
    "cols differ": ("128x512+256", FIRST, 16, "tensor 1 has cols = 256 where tensor 0 has 512"),
    "rows differ, same": ("128+256x512", SAME, 16, "tensor 1 has rows = 256"),
    "cols differ, same": ("128x512+512+256", SAME, 16, "tensor 2 has cols = 256"),
    "varying rows": ("128+200x512", FIRST, 16, "tensor 1 has rows = 200; a varying extent is 0 or a multiple of "
                     "16, the nearest is 192"),
    "varying rows near 0": ("128+4x512", FIRST, 16, "tensor 1 has rows = 4;.*the nearest is 16"),
    "varying cols": ("128x256+147", LAST, 16, "tensor 1 has cols = 147; .*the nearest is 144"),
    "varying both": ("128+256x512+72", BOTH, 16, "tensor 1 has cols = 72"),
    "splits by 128": ("64of512x512", FIRST, 16, "the nearest is 128; a capacity that ends in by64 takes mu"),
    "splits by 64": ("64+32of512by64x512", FIRST, 16, "tensor 1 has rows = 32; .* multiple of 64, the nearest is 64$"),
    "splits by another": ("64of512by32x512", FIRST, 16, "splits by 32 of an allocation; splits are by 128 or 64"),
    "lines of 64": ("64x64of137439019008by64", BOTH, 16, "a capacity of 2147484672 elements / 64 is beyond 2147418112"),
    "fixed cols": ("128+128x40", FIRST, 16, "tensor 0 has cols = 40; cols is a positive multiple of 16, the"),
    "fixed cols, per token": ("128+128x64", FIRST, 128, "tensor 0 has cols = 64; .* of 128, the nearest is 128"),
    "fixed rows": ("2*40x512", SAME, 16, "tensor 0 has rows = 40"),
    "zero where it is fixed": ("2*0x512", SAME, 16, "tensor 0 has rows = 0; .*the nearest is 16"),
    "zero cols where fixed": ("128+128x0", FIRST, 16, "tensor 0 has cols = 0"),
    "65 tensors": ("65*128x128", SAME, 16, "tensor 64 is one too many: 65 tensors; at most 64"),
    "rows beyond 31 bits": ("4294967424x16", FIRST, 16, "tensor 0: rows = 4294967424 is beyond 2147418112, and no"),
    "cols beyond 31 bits": ("128x0+2147483648", LAST, 16, "tensor 1: cols = 2147483648 is beyond 2147418112"),
    "all rows": ("2147418112+0+128x256", FIRST, 16, "tensor 2 ends at rows = 2147418240 of the group; the rows of all "
                 "tensors sum up to 2147418112 at most, and no kernel takes more"),
    "all cols": ("128x1073741824+1073741824", LAST, 16, "tensor 1 ends at cols = 2147483648 of the group"),
    "all cols, which are alike": ("2*128x1073741824", FIRST, 16, "tensor 1 ends at cols = 2147483648 of the group"),
    "all rows, which are alike": ("64*33554432x16", SAME, 16, "tensor 63 ends at rows = 2147483648 of the group"),
    "a capacity of rows": ("128of4294967296x16", FIRST, 16, "a capacity of 4294967296 rows is beyond 2147418112"),
    "a capacity of elements": ("128x128of274877906944", BOTH, 16, "a capacity of 2147483648 elements / 128 is beyond"),
    "no such representation": ("2*128x128", "varying", 16, "no shape representation 'varying'; choose same_both"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "representation", "multiple_of", "sentence"), REFUSED.values(), ids=REFUSED)
def test_an_illegal_shape_names_its_tensor(text: str, representation: str, multiple_of: int, sentence: str):
    with pytest.raises(ContractError, match=sentence):
        shape(text).require(representation, multiple_of)


LEGAL = [
    ("128+0+0+256x528", FIRST), ("0+0x16", FIRST), ("48x0+128+0", LAST), ("0+128x256+0", BOTH),  # zeros where they vary
    ("64*128x128", BOTH), ("64*16x16", SAME), ("16x16", SAME),
    ("2147418112x16", FIRST), ("2147417984+0+128x256", FIRST), ("128x2147418112", LAST),  # the largest
    ("128of2147418112x16", FIRST), ("2*1073709056x16", SAME),
]  # fmt: skip


@pytest.mark.parametrize(("text", "representation"), LEGAL)
def test_zeros_where_an_extent_varies_and_the_largest_groups_are_legal(text: str, representation: str):
    shape(text).require(representation)


# A caller's arrays


def test_arrays_of_every_representation():
    assert from_arrays(SAME, 4, (64, 32)).tensors == ((16, 32),) * 4
    assert from_arrays(FIRST, 3, (384, 512), [128, 0, 256]).tensors == shape("128+0+256x512").tensors
    assert from_arrays(LAST, 2, (256, 512), None, [128, 384]).tensors == shape("256x128+384").tensors
    assert from_arrays(BOTH, 2, (1, 98304), [128, 256], [512, 128]).tensors == shape("128+256x512+128").tensors


@pytest.mark.parametrize(
    ("text", "kind"), [("3*48x64", SAME), ("128+0+256x512", FIRST), ("256x128+384", LAST), ("128+0x512+128", BOTH)]
)
def test_a_shapes_own_arrays_are_that_shape(text: str, kind: str):
    group = shape(text)
    arrays = group.first_dims, group.last_dims, group.tensor_offsets
    assert from_arrays(kind, len(group), group.logical(kind), *arrays) == group


ARRAYS = {
    "empty list": ((FIRST, 0, (0, 512), []), "a group of 0 tensors; it has 1 to 64"),
    "65 tensors": ((FIRST, 65, (65 * 128, 512), [128] * 65), "tensor 64 is one too many"),
    "too few dims": ((FIRST, 3, (256, 512), [128, 128]), "2 entries and must have 3; entry 2 is missing"),
    "too many dims": ((FIRST, 1, (256, 512), [128, 128]), "2 entries and must have 1; entry 1 is one too many"),
    "beyond 31 bits": ((FIRST, 2, (1 << 31, 16), [(1 << 31) - 128, 128]), "tensor 0: rows = 2147483520 is beyond"),
    "dims are missing": ((LAST, 2, (256, 512)), "varying_last_dim needs last_dims, the cols of each of the 2 tensors"),
    "a fraction": ((FIRST, 2, (256, 512), [128, 128.0]), r"first_dims\[1\] is 128.0; it must be an integer"),
    "negative dim": ((FIRST, 2, (128, 512), [256, -128]), "tensor 1 has rows = -128; a varying extent is 0 or"),
    "varying dim": ((FIRST, 2, (328, 512), [128, 200]), "tensor 1 has rows = 200"),
    "not divisible": ((SAME, 8, (100, 512)), "tensor 7 would end at row 96 of 100: .* by 8 tensors; the nearest are 96 "
                      "and 104"),
    "not divisible, dims given": ((SAME, 8, (132, 512), [16] * 8), "tensor 7 would end at row 128 of 132"),
    "dims too long": ((FIRST, 3, (256, 512), [128, 256, 128]), "tensor 1 ends at rows = 384; the logical rows are 256"),
    "dims too short": ((FIRST, 2, (512, 512), [128, 128]), "tensor 1 ends at rows = 256; the logical rows are 512"),
    "fixed dim": ((FIRST, 2, (256, 512), [128, 128], [256, 256]), "tensor 0 ends at cols = 256; the logical"),
    "elements": ((BOTH, 2, (1, 99999), [128, 256], [512, 128]), "tensor 1 ends at cols = 98304; the logical cols are"),
    "not one row": ((BOTH, 1, (128, 512), [128], [512]), "the logical rows are 128; in varying_both_dims they are 1"),
    "offsets from 16": ((FIRST, 2, (256, 512), [128, 128], None, [16, 65552, 131088]), "tensor 0 starts at element 16"),
    "overlap": ((FIRST, 2, (256, 512), [128, 128], None, [0, 65535, 131071]), "tensor 0 ends at element 65535, so that "
                "the next one overlaps it; 128x512 elements from 0 end at 65536"),
    "gap": ((FIRST, 2, (256, 512), [128, 128], None, [0, 65536, 131080]), "tensor 1 ends at element 131080, .* a gap"),
    "negative offset": ((FIRST, 2, (256, 512), [128, 128], None, [0, -65536, 131072]), "tensor 0 ends at element "
                        "-65536, which is negative or before its start at 0"),
    "offsets run back": ((FIRST, 2, (128, 512), [128, 0], None, [0, 65536, 65535]), "tensor 1 ends at element 65535, "),
    "offsets of n": ((FIRST, 2, (256, 512), [128, 128], None, [0, 65536]), "tensor_offsets has 2 entries and must"),
    "no representation": (("same", 2, (256, 512)), "there is no shape representation 'same'"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "sentence"), ARRAYS.values(), ids=ARRAYS)
def test_arrays_that_disagree_name_the_tensor(arguments: tuple, sentence: str):
    with pytest.raises(ContractError, match=sentence):
        from_arrays(*arguments)


def test_arrays_of_numpy_count_as_integers():
    dims = np.array([128, 0, 256], np.int32)
    assert from_arrays(FIRST, 3, (384, 512), dims).first_dims.tolist() == [128, 0, 256]
    with pytest.raises(ContractError, match=r"first_dims\[0\] is .* must be an integer"):
        from_arrays(FIRST, 3, (384, 512), dims.astype(np.float32))
    with pytest.raises(ContractError, match=r"must be an integer"):
        from_arrays(FIRST, 3, (384, 512), dims[:, None] * [1, 1])


def test_sixty_four_tensors_are_legal():
    assert len(from_arrays(SAME, MOST_TENSORS, (64 * 16, 16))) == 64


# Allocations with a capacity


@pytest.mark.parametrize(
    ("text", "canonical", "capacity"),
    [
        ("128+0+256of1024x512", "128+0+256of1024x512", 1024 * 512),
        ("128+128of256x512", "2*128of256x512", 256 * 512),
        ("256of512x64", "256of512x64", 512 * 64),
        ("0+0of128x16", "2*0of128x16", 128 * 16),
        ("128+256x512+128of131072", "128+256x512+128of131072", 131072),
        ("128+256x128of65536", "128+256of512x128", 65536),
        ("64+0of128by64x16", "64+0of128by64x16", 128 * 16),
        ("64+128x128+64of65536by64", "64+128x128+64of65536by64", 65536),
        ("128+0of256by128x16", "128+0of256x16", 256 * 16),
    ],
)
def test_a_capacity_is_read_and_printed(text: str, canonical: str, capacity: int):
    group = shape(text)
    assert (group.capacity, group.allocated, str(group)) == (capacity, capacity, canonical)
    assert shape(canonical) == group


def test_a_group_without_a_capacity_fills_its_allocation():
    assert (shape("128+0x512").capacity, shape("128+0x512").allocated) == (None, 128 * 512)
    assert shape("128+128of256x512") != shape("128+128x512")


@pytest.mark.parametrize(
    ("text", "representation", "logical"),
    [
        ("128+0+256of1024x512", FIRST, (1024, 512)),
        ("128+256x512+128of131072", BOTH, (1, 131072)),
        ("64+0+192of1024by64x512", FIRST, (1024, 512)),
    ],
)
def test_the_allocation_as_one_matrix(text: str, representation: str, logical: tuple[int, int]):
    group = shape(text)
    group.require(representation)
    assert group.logical(representation) == logical
    dims = group.first_dims, group.last_dims, group.tensor_offsets
    assert (
        from_arrays(representation, len(group), logical, *dims, capacity=group.capacity, splits_by=group.splits_by)
        == group
    )


@pytest.mark.parametrize(
    ("text", "representation", "because"),
    [
        ("128+256of512x512", SAME, "tensor 1 has rows = 256 where tensor 0"),
        ("2*128of512x512", SAME, "a capacity in same_both_dims; the tensors fill .* varying_first_dim or"),
        ("2*128of512x512", LAST, "a capacity in varying_last_dim"),
        ("128+256of256x512", FIRST, "tensor 1 ends at element 196608 of an allocation of 131072"),
        ("128+256of500x512", FIRST, "a capacity of 500 rows; it is a positive multiple of 128, the nearest is 512"),
        ("0+0of0x512", FIRST, "a capacity of 0 rows; .* the nearest is 128"),
        ("128+256x512+128of100000", BOTH, "a capacity of 781.25 elements / 128; .* the nearest is 768"),
        ("0+0x128+256of32768", BOTH, "the cols sum up to 384; an allocation of 32768 elements has amaxes of 256"),
    ],
)
def test_a_capacity_that_no_allocation_has(text: str, representation: str, because: str):
    with pytest.raises(ContractError, match=because):
        shape(text).require(representation)


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("128+256of1024x512of99", "has two capacities"),
        ("128+256of1024x512+128", "counts its capacity in rows, which have different cols; count elements"),
        ("128ofx512", "is not a grouped shape"),
        ("128by64x512", "is not a grouped shape"),
        ("128of256byx512", "is not a grouped shape"),
        ("of128x512", "is not a grouped shape"),
    ],
)
def test_a_capacity_that_cannot_be_read(text: str, because: str):
    with pytest.raises(ContractError, match=because):
        shape(text)
