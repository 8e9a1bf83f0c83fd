"""Strata: the program `strata`, its engine, models and documents. There is nothing to import."""

__version__ = "@VERSION@"
