"""From a case that fails to the smallest part of it that still does, and a reproducer of that part."""
