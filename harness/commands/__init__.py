"""The commands of `harness`, a module each, which defines a click command named `command`.

May import everything but `cli`, which imports a command's module when it is asked for; nothing imports a command. What
several commands share is in `_shared`.
"""
