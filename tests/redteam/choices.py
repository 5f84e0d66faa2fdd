"""Random choices that are the same on every system for the same seed."""

import random
import re


class Choices(random.Random):
    """A source of choices; `Choices("7/3")` always gives the same ones."""

    def __init__(self, seed, language="c"):
        super().__init__(seed)
        self.language = language

    def chance(self, percent):
        """True in this many of a hundred cases."""
        return self.randrange(100) < percent

    def some(self, values, least=0):
        """A sample of the values, in random order."""
        return self.sample(values, self.randint(least, len(values)))

    def term(self, value):
        """An expression of type u64 that no compiler can evaluate without its operand, sometimes through a function."""
        constant = self.randrange(3, 1 << self.choice([3, 7, 12, 20, 31]))
        forms = [
            f"((u64){value} * {constant}u + {self.randrange(99)}u)",
            f"((u64){value} ^ {constant}u)",
            f"(((u64){value} << {self.randrange(1, 9)}) - {constant}u)",
            f"(((u64){value} >> {self.randrange(1, 5)}) + {constant}u)",
            f"filler{self.randrange(FILLERS)}((u64){value} + {constant}u)",
        ]
        return self.choice(forms)

    def statements(self, result, value):
        """What a case does: changes `result` by something that differs from what other cases do."""
        lines = []
        for _ in range(self.choice([1, 1, 1, 2, 3])):
            form = self.randrange(6)
            if form == 0:
                lines.append(f"mix({self.term(value)});")
            elif form == 1:
                lines.append(f"for (u64 step = 0; step < ({value} & 3); step++) {result} = {self.term(result)};")
            elif form == 2:
                lines.append(f"if ({value} & {1 << self.randrange(4)}) mix({self.term(result)}); else {result} ^= {self.randrange(1 << 16)};")
            else:
                lines.append(f"{result} = {result} * {self.choice([3, 5, 7, 31])} + {self.term(value)};")
        return " ".join(lines)

    def function_attributes(self):
        """Attributes of a function that is called by others; some of them change where compilers put it."""
        pool = ["cold", "hot", "noclone", "aligned(32)", "aligned(64)", 'optimize("O1")', 'optimize("Os")',
                'section(".text.special")', "no_instrument_function", "noipa", "flatten"]
        found = [name for name in pool if self.chance(7)]
        if "cold" in found and "hot" in found:
            found.remove("hot")
        # gcc's own attributes are written as macros, which are empty for clang.
        return " ".join(["NOINLINE" if self.chance(80) else ""] + [attribute(name) for name in found])


FILLERS = 8
GCC_ONLY = ("noclone", "noipa", "optimize")


def attribute(name):
    """An attribute in the form that both compilers read."""
    macro = "GCC_ATTRIBUTE" if name.startswith(GCC_ONLY) else "ATTRIBUTE"
    return f"{macro}({name})"


def fill(text, **values):
    """Replaces each @name@ of a template; C has no use for that sign."""
    return re.sub(r"@(\w+)@", lambda match: str(values[match.group(1)]), text)
