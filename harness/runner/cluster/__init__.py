"""A suite run on the workers of a Dask cluster. Here are `loop` and `connection`, there are `worker` and `child`."""
