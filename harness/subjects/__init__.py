"""Other implementations, run on the same cases as our kernels: `--subject NAME`, or `--subject module:function`.

A subject is a function `quantize(case, inputs, outputs)`. `inputs` and `outputs` map the case's array names to arrays
in shape and dtype: of CuPy on a GPU, where work is queued on the current stream (CuPy's and torch's alike), or of NumPy
on the CPU. bf16 is ml_dtypes' in NumPy and uint16 in CuPy, which has none; `handover.tensor` makes either a tensor of
torch. It returns nothing and writes its results into `outputs`. A module here, or the user's, may also have

  NEEDS        {distribution: the line that installs it}; where one is absent, every case is EXCLUDED with that line
  refuses      refuses(case) -> why the subject cannot run this case, or ""; asked of every case before there are data,
               and again later: an answer that changes, and an error that says "not me" from `quantize`, is an offence
  CONVENTIONS  names of the differences from our bytes that are meant (`harness.subjects.audit.conventions`)

and imports the packages it needs inside its functions, so that it can be loaded without them.
"""
