"""For every test: time is measured in benchmarks and never asserted, by hypothesis neither."""

from hypothesis import settings

settings.register_profile("untimed", settings(deadline=None))
settings.load_profile("untimed")
