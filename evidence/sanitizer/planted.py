"""`python -m evidence.sanitizer.planted TOOL`: launch a kernel with an error for the tool to find."""

from __future__ import annotations

import sys
from pathlib import Path

from evidence.sanitizer.compute_sanitizer import TOOLS
from harness.device.cuda_code import load, native_target
from harness.jit.compile import Compiled, compile_kernel
from harness.jit.signature import read_signatures


def compiled(tool: str, target: str) -> Compiled:
    signature = read_signatures("planted", Path(__file__).parent)[f"planted_{tool}"]
    return compile_kernel(signature, {}, target)


def main(tool: str) -> None:
    import cupy

    cupy.cuda.set_allocator(None)
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    kernel = compiled(tool, native_target(properties["major"], properties["minor"]))
    words = cupy.empty(kernel.launch.threads, cupy.uint32)
    load(kernel)((1,), (kernel.launch.threads,), (words,))
    cupy.cuda.get_current_stream().synchronize()


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in TOOLS:
        sys.exit(f"usage: python -m evidence.sanitizer.planted {'|'.join(TOOLS)}")
    main(sys.argv[1])
