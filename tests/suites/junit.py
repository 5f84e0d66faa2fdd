"""Prints the results of CPython's regression tests: module, test, outcome.

Usage: junit.py RESULTS.xml LOG

The XML has the single tests; the log has the modules' own outcomes, also of those that end before their first test.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree

MODULE = re.compile(r"^(?:\d+:\d\d:\d\d )?(?:load avg: \S+ )?\[ *\d+/\d+(?:/\d+)?\] (test\w+) (passed|failed|skipped|crashed|timed out|worker)")


def main():
    """Reads both files."""
    results, log = map(pathlib.Path, sys.argv[1:3])
    if results.exists():
        for case in xml.etree.ElementTree.parse(results).iter("testcase"):
            name = case.get("name", "")
            package, *parts = name.split(".")
            # Some modules only load the tests of a package of the library.
            module = parts[0] if package == "test" and parts else "other"
            outcome = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), case.get("result", "ran"))
            print(f"{module}\t{name}\t{outcome}")
    for line in log.read_text(errors="replace").splitlines():
        if found := MODULE.match(line):
            print(f"{found[1]}\tmodule\t{found[2]}")


if __name__ == "__main__":
    main()
