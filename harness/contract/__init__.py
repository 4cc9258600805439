"""What a case is, what it computes on, and what it may write: all that an oracle needs to know.

Cases and their flags, problems and the shapes of groups, fields and intervals. May import `harness.errors` and
`harness.text` alone.
"""
