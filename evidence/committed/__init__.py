"""Make every committed table, in parts, all from one state of the tree.

A state is a digest of the sources. Tables are made one after the other in a folder of their own, which may be carried
from one machine to another, and come to `results/` together.
"""
