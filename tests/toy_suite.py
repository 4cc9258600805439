"""A correct suite of a recipe `toy`, with every feature of the format."""

from __future__ import annotations

SUITE = """\
# yaml-language-server: $schema=schema.json
recipe: toy
contract: NUMERICS 0

axes:
  dtype: [bf16, fp16]
  rht: [false, true]
  rounding: [rne, sr]
  sign_mask: [0xD7E8, 1]

exclude:
  - when: {rht: true, dtype: fp16}
    because: the rotation is defined on bf16 inputs only
  - when: {rht: false, sign_mask: 1}
    because: a sign mask means nothing without the rotation

launches:
  - kernel: toy_amax
    when: {rht: [false, true]}
    scratch: {state: 16}
  - kernel: toy_encode
    when: {rounding: rne}

sets:
  smoke:
    - cover: pairwise
      shapes: [[16, 16], [48, 80]]
      inputs: [normal, ties]
  full:
    - cover: product
      shapes: [[32, 32]]
      inputs: [normal]
      modes: [eager, graph]
  bench:
    - cover: each
      axes: {rht: true, others: default}
      shapes:
        - [16, 32]
      inputs: [normal]
"""
