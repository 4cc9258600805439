"""Benchmark and validation of NVFP4 quantization kernels: bytes first, then time.

A suite in YAML names cases; every case runs a CUDA kernel and two independent oracles on the same input, compares
every byte, and only then is timed. `docs/tour.md` walks through it. Beside the folders lie only the command line
(`cli`), pytest's hooks (`plugin`), and what every folder may import: `errors`, `verdict` and `files`.
"""
