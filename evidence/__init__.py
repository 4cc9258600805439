"""Why to believe the harness: each folder or file is a study, with a verb of its own and mostly a table in `results/`.

`python -m evidence NAME`, in a checkout; `make mutants`, `make tables` and others call it. `mutants` plants mistakes in
kernels and oracles, `museum` has bugs that people met, `peers` times what others published, `sanitizer` runs the
suites under compute-sanitizer, `fuzz` mutates texts, `products` bounds the errors of GEMMs of quantized tensors,
`agreement` asks who agrees with the oracles, `opcodes`, `coverage`, `thresholds` and `conversions` count what is
tested, `targets` has the figures that the roofline is to reach, `docs` renders what README and docs/ show, `committed`
makes all tables of one state.

It may import the harness and the emulator; neither imports it, and a wheel leaves it out. Few studies import another,
and only `commands` imports them all.
"""
