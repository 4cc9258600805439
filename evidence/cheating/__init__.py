"""Subjects that cheat, and the proof that the harness rejects each by its name.

`cheats` are the subjects, made with `tools`; `attacks` runs them. Only `commands/attack` imports this folder.
"""
