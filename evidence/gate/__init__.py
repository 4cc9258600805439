"""The proof of the gate: `self_test` runs it on a commit against itself, unchanged and with planted slowdowns.

`power` simulates how large a change it finds. Only `commands/prove` imports this folder.
"""
