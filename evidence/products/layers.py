"""The tensors of layers in bf16, x (M, K), w (N, K) and dy (M, N): from a file, or from a distribution."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.errors import InputError
from harness.inputs import draw
from harness.quality import tensors

ROLES = {"x": "input", "w": "weight", "dy": "grad_output"}


@dataclass(frozen=True)
class Layer:
    """x (M, K), w (N, K) and dy (M, N), bf16, by these names."""

    name: str
    values: dict[str, np.ndarray]

    @property
    def shape(self) -> str:
        (m, k), (n, _) = self.values["x"].shape, self.values["w"].shape
        return f"{m}x{k}x{n}"


def named(name: str, shape: Sequence[int]) -> Layer:
    """A layer from a distribution; the same name and shape give the same bytes."""
    m, k, n = shape
    sizes = {"x": (m, k), "w": (n, k), "dy": (m, n)}
    return Layer(name, {role: draw.make(name, *size, "bf16", _seed(name, role, size)) for role, size in sizes.items()})


def _seed(name: str, role: str, size: tuple[int, int]) -> int:
    text = f"{name}/{role}/{size[0]}x{size[1]}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def stored(path: Path = tensors.SAMPLE) -> Iterator[Layer]:
    """The layers of a file: L.input (M, K), L.weight (N, K) and L.grad_output (M, N) form layer L. If two tensors
    disagree on an extent, both are cut to the smaller one. Raises InputError for a file without a layer.
    """
    found, _ = tensors.stored(path, (), "bf16")
    by_name = {tensor.name: tensor.values for tensor in found}
    layers = [name.removesuffix(".weight") for name in by_name if name.endswith(".weight")]
    layers = [layer for layer in layers if all(f"{layer}.{part}" in by_name for part in ROLES.values())]
    if not layers:
        wanted = ", ".join(f"L.{part}" for part in ROLES.values())
        raise InputError(f"{path}: no layer has the tensors {wanted}; there are {', '.join(sorted(by_name))}")
    for layer in layers:
        yield _fitted(layer, {role: by_name[f"{layer}.{part}"] for role, part in ROLES.items()})


def _fitted(name: str, values: dict[str, np.ndarray]) -> Layer:
    x, w, dy = (values[role] for role in ROLES)
    m, k, n = min(len(x), len(dy)), min(x.shape[1], w.shape[1]), min(len(w), dy.shape[1])
    return Layer(name, {"x": x[:m, :k], "w": w[:n, :k], "dy": dy[:m, :n]})
