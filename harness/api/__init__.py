"""What `import harness` offers to programs: a few documented functions over the folders below, and no logic of suites.

May import what verifies a case; the root package hands out its names, each imported when it is first asked for.
"""
