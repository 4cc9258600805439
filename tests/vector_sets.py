"""A small set of vectors on disk, and what a checker says."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import ml_dtypes  # noqa: F401 - safetensors reads bf16 only where NumPy knows it
import numpy as np
from safetensors.numpy import load_file, save_file

from harness.suite.suite import find_case
from harness.vectors import check
from harness.vectors.write import name_of

PLAIN = "per_tensor/default/16x16/normal/eager"
RANDOM = "per_tensor/rounding=sr/48x80/normal/eager"
SPECIALS = "per_tensor/scale_layout=swizzled/48x80/specials_nan/eager"
TINY = "local_1x64/default/64x64/zero_blocks/eager"
TIES = "per_tensor/outputs=rowwise/48x80/ties/eager"
GROUP = "grouped/dtype=fp32,rounding=sr,scale_layout=swizzled/0+128+0+128of512x48/normal/eager"
PRODUCT = "gemm/default/16x144x48/wide_sum/eager"
DECODED = "dequantize/default/32x128/exhaustive/eager"
CASTS = "casts/default/32x64/specials_nan/eager"
NO_ROWS = "per_tensor/outputs=rowwise/0x80/normal/eager"
UE5M3 = "per_tensor/outputs=rowwise,scale_format=ue5m3,global_scale=false/48x80/normal/eager"
MXFP8 = "mxfp8/default/32x96/specials_nan/eager"  # of examples/, in a set of its own
IDS = (PLAIN, RANDOM, SPECIALS, TINY, TIES, GROUP, PRODUCT, DECODED, CASTS, NO_ROWS, UE5M3)


@dataclass
class VectorSet:
    folder: Path

    @property
    def index(self) -> dict:
        return json.loads((self.folder / "index.json").read_text())

    def about(self, case_id: str) -> dict:
        return self.index["vectors"][name_of(find_case(case_id))]

    def tensors(self, case_id: str) -> dict[str, np.ndarray]:
        return load_file(self.folder / self.about(case_id)["file"])

    def answer(self, case_id: str) -> dict[str, np.ndarray]:
        """The fields that a correct implementation writes; for a field with an interval, its lowest values."""
        there = self.tensors(case_id)
        found = {name: there.get(f"expected.{name}") for name in self.about(case_id)["fields"]}
        return {name: there[f"lowest.{name}"] if value is None else value for name, value in found.items()}

    def write(self, path: Path, fields: dict[str, np.ndarray]) -> Path:
        save_file({name: np.ascontiguousarray(value) for name, value in fields.items()}, path)
        return path


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


Checker = Callable[..., Said]


def in_python(*words: object) -> Said:
    """In this process, because it is called a thousand times; `test_it_needs_nothing_but_python` starts one."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = check.run([str(word) for word in words])
    return Said(code, out.getvalue(), err.getvalue())
