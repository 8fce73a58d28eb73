"""Settings of all tests."""

from hypothesis import settings

# A busy machine is no failure: no time limit per example, and the same examples every run.
settings.register_profile('wamdiff', deadline=None, derandomize=True, print_blob=True)
settings.load_profile('wamdiff')
