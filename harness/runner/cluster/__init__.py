"""A suite run on the workers of a Dask cluster.

This machine runs `connection`, the workers run `worker` and `child`.
"""
