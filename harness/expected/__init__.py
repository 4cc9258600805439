"""What a case reads and must write: its inputs, the answers of both oracles, and whether these agree.

`witness/` checks all of them by code of its own. Imports the contract, inputs, oracles and suites; of devices only what
holds arrays on a GPU.
"""
