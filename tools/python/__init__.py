"""Strata: the program `strata`, its engine, models and documents. strata.follow sends logs on."""

__version__ = "@VERSION@"
