"""The pictures of the pages: geometry as plain numbers here, shapes in `templates/plots.html.j2`.

May import `bench/statistics` and each other.
"""
