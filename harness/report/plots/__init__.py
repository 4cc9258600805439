"""What the pages draw: geometry as plain numbers here, shapes in `templates/plots.html.j2`. Imports no other folder."""
