"""Tells which tests differ because of a permutation.

Usage: compare.py BEFORE BEFORE-AGAIN AFTER AFTER-AGAIN

Each file has one line a test: group, test, outcome. The second run of a build may have fewer groups. A test differs when both
runs of one build agree and no run of the other ends like that; another that differs varies by itself.
The status is 1 when a test differs.
"""

import collections
import pathlib
import sys


def outcomes(path):
    """Outcomes by group and test; a name that comes several times has all of them."""
    found = collections.defaultdict(list)
    for line in pathlib.Path(path).read_text().splitlines():
        group, test, outcome = (line.split("\t") + ["", ""])[:3]
        found[group, test].append(outcome)
    return {key: tuple(sorted(values)) for key, values in found.items()}


def main():
    """Compares the four runs."""
    before, before_again, after, after_again = (outcomes(path) for path in sys.argv[1:5])
    again = {group for group, _ in before_again} | {group for group, _ in after_again}
    differ, vary = [], []
    for key in sorted(before.keys() | after.keys()):
        first, second = before.get(key), after.get(key)
        if first == second:
            continue
        one, two = before_again.get(key), after_again.get(key)
        is_lost = first == one and first not in (second, two) or second == two and second not in (first, one)
        if key[0] not in again or is_lost:
            differ.append((key, first, second))
        else:
            vary.append(key)
    for key, first, second in differ:
        print(f"{key[0]} {key[1]}: {first} before, {second} after", file=sys.stderr)
    print(f"{len(differ)} differ, {len(vary)} vary by themselves" + "".join(f" [{group} {test}]" for group, test in vary[:5]))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
