"""Mnesis as a Django project: settings, endpoints, the commands that start it."""

import gc

# As it comes, Python looks for garbage hundreds of times while it imports us, a tenth of the time of every start.
gc.set_threshold(20_000, 10, 10)
