"""One lock for each GPU of a machine, for all processes and users."""

from __future__ import annotations

from pathlib import Path

from harness.ground.locks import NamedLock

_FOLDER = Path("/tmp")  # noqa: S108 - not $TMPDIR, which users may have each their own of


def gpu_lock(uuid: bytes, folder: Path = _FOLDER) -> NamedLock:
    """Held while a GPU is needed alone. uuid: of the GPU, the same whatever number CUDA_VISIBLE_DEVICES gives it"""
    return NamedLock.of(
        folder / f"nvfp4-harness-gpu-{uuid.hex()}.lock",
        0o666,
        "it is for all users of this GPU, so ask its owner to remove it",
    )
