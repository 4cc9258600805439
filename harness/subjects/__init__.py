"""Other implementations, run on the same cases as our kernels: `--subject NAME`, or `--subject module:function`.

A subject is a function `quantize(case, inputs, outputs)`. `inputs` and `outputs` map the case's array names to arrays
in shape and dtype: of CuPy on a GPU, where work is queued on the current stream (CuPy's and torch's alike), or of NumPy
on the CPU. bf16 is ml_dtypes' in NumPy and uint16 in CuPy, which has none; `handover.tensor` makes either a tensor of
torch. It returns nothing and writes its results into `outputs`. A module here, or the user's, may also have

  NEEDS        {distribution: the line that installs it}; where one is absent, every case is EXCLUDED with that line
  refuses      refuses(case) -> why the subject cannot run this case, or ""; asked of every case before there are data,
               and again later: an answer that changes, and an error that says "not me" from `quantize`, is a violation
  HARNESS_FLAGS  {flag: the value, or list of values, that it is for}, which the cases of a set take on; read from the
               source, before and without running it
  TRITON_TARGET  `sm_100a`: as what its kernels of Triton are emulated, with all checks, where there is no GPU
  CONVENTIONS  names of the differences from our bytes that are meant (`harness.subjects.audit.conventions`)

and imports the packages it needs inside its functions, so that it can be loaded without them.

It runs in a process of its own (`process`, `child`), on memory that is shared with it (`shared`): what it does to that
process, by signals, patches, threads or an exit, cannot reach the data it is compared with, the verdict or the exit
code. There it finds no variable of the run and no oracle, and what it prints is dropped. To be timed its calls must be
capturable in a graph, because the wall clock bounds the time of a graph alone.
"""
