"""For every test: time is measured in benchmarks and never asserted, by hypothesis neither."""

from hypothesis import settings

settings.register_profile("untimed", parent=settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("untimed")
