"""`python -m evidence.museum.on_gpu NAME bug|mend`: run an exhibit, or a ring, which is right either way, on a
GPU, for compute-sanitizer to look at.

Exits with 0 if the bytes are right, 1 if not, 2 if it could not run.
"""

from __future__ import annotations

import sys

from evidence.museum.driver import OnGpu, device, encoded
from evidence.museum.exhibit import OPTIONS, Kernels, contents, exhibits, headers, map_of
from harness.jit.nvrtc import build


def main(kernels: Kernels, mended: bool, arch: str) -> int:
    """Launch everything once."""
    name = f"{kernels.name}.cu"
    sources = {name: kernels.source, **headers()}
    cubin = build(name, sources, (), (*OPTIONS, f"-DMENDED={int(mended)}", f"-arch={arch}")).cubin
    arrays = {name: contents(array) for name, array in kernels.arrays.items()}
    with OnGpu(cubin, arrays) as gpu:
        given = {each.name: encoded(map_of(each, gpu.addresses[each.array])) for each in kernels.maps.values()}
        for each in kernels.launches:
            arguments = [given.get(name) or (name if name in arrays else int(name)) for name in each.arguments]
            gpu.launch(each.kernel, each.grid, each.block, arguments, early=each.early)
        found = gpu.result()
    return int(any((found[one] != found[other]).any() for one, other in kernels.same))


def _known(name: str) -> dict[str, Kernels]:
    """Exhibits by name; for another name also the rings, which take long to import."""
    found: dict[str, Kernels] = {each.name: each for each in exhibits()}
    if name not in found:
        from evidence.museum.ring import rings

        found |= {ring.kernels.name: ring.kernels for ring in rings()}
    return found


if __name__ == "__main__":
    by_name = _known(sys.argv[1] if len(sys.argv) > 1 else "")
    if len(sys.argv) != 3 or sys.argv[1] not in by_name or sys.argv[2] not in ("bug", "mend"):
        sys.exit(f"usage: python -m evidence.museum.on_gpu {'|'.join(by_name)} bug|mend")
    target = device()
    if target is None:
        print("no GPU from Hopper on", file=sys.stderr)
        sys.exit(2)
    chosen = by_name[sys.argv[1]]
    if chosen.arch.startswith("sm_100") and not target.startswith("sm_10"):
        print(f"{chosen.name} needs {chosen.arch}, and the GPU is {target}", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(chosen, sys.argv[2] == "mend", target))
