"""Prints the results of SQLite's tests from the output of testfixture: file, test, outcome.

Standard input: the output with --verbose=1. A test's name is followed by Ok, or by lines that begin with an exclamation mark.
"""

import re
import sys

TEST = re.compile(r"^(\S+)\.\.\.(.*)$")
DURATION = re.compile(r"\(\d+(?:\.\d+)? ?ms[^)]*\)")
TIME = re.compile(r"^Time: (\S+\.test) ")


def main():
    """Reads all lines; a file's time closes its tests."""
    pending = []
    for line in sys.stdin.buffer.read().decode(errors="replace").splitlines():
        if found := TEST.match(line):
            pending.append([found[1], DURATION.sub("", found[2]).strip() or "nothing"])
        elif line.startswith("! ") and pending:
            pending[-1][1] = "failed"
        elif found := TIME.match(line):
            for name, outcome in pending:
                print(f"{found[1]}\t{name}\t{outcome}")
            pending = []
        elif " errors out of " in line:
            print(f"all\terrors\t{line.split(' on ')[0]}")
    for name, outcome in pending:
        print(f"unfinished\t{name}\t{outcome}")


if __name__ == "__main__":
    main()
