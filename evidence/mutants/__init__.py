"""Mutation testing: small mistakes in kernels and oracles, and the case of the suites that catches each.

The YAML files are the `catalogue`, and `generated/` draws others by a seed. `source` finds functions in a text, and
`places` a change in a function. `reach` orders the cases, `same_code` finds those that cannot tell, `hunt` runs the
others on the emulator, `journal` keeps the results and `table` prints them.
`museum/ring` writes changes as `places` does.
"""
