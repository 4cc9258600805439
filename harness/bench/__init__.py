"""Taking times of what verification found right, on a GPU, and what they are held against.

Everything that knows of time lives here: the timer, the clocks, copies that keep memory cold, the rounds and what they
say. Imports devices, verification and what is below those; never pytest, a gate or a report.
"""
