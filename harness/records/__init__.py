"""What a run leaves on disk: its journal, the records in it, and the folder they lie in, written, read and checked.

May import every folder before it, `verify/` and `check/` aside, and `harness.verdict`.
"""
