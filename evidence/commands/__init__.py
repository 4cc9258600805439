"""The verbs of `python -m evidence`, a module each, which defines a click command named `command`.

May import everything; nothing imports them but `__main__`. What they share with the verbs of the harness is in
`harness.commands._shared`.
"""
