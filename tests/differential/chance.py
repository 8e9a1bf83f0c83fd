"""Draws the parts of a case; now and then a wrong one."""

import random


class Chance(random.Random):
    def __init__(self, kind, seed, number, wrongness=0.03):
        super().__init__("%s %d %d" % (kind, seed, number))
        self.wrongness = wrongness

    def wrong(self, right, otherwise):
        return otherwise if self.random() < self.wrongness else right

    def some(self, args, keep=0.6):
        """Some of the arguments: what is left out has its default."""
        return {name: value for name, value in args.items() if self.random() < keep}
