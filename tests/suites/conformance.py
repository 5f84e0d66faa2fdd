"""Runs a sample of test262, the conformance tests of ECMAScript, in a run-time.

Usage: conformance.py CHECKOUT NUMBER PROGRAM [ARGUMENT…] -- [GROUP…]. The sample is every n-th test of the sorted list. Each test
runs as a script in the current directory, without the files beside it, so those that import some fail. Prints a line a test:
group, test, and its exit status with a digest of what it printed. Groups limit the run.
"""

import concurrent.futures
import hashlib
import os
import pathlib
import re
import subprocess
import sys

# A test that runs longer has failed.
MAX_SECONDS = 60


def metadata(text):
    """The flags of a test and the files that it includes."""
    block = re.search(r"/\*---(.*?)---\*/", text, re.DOTALL)
    words = {"flags": [], "includes": []}
    for key in words:
        listed = block and re.search(rf"^{key}:\s*\[(.*?)\]", block[1], re.MULTILINE | re.DOTALL)
        items = block and re.search(rf"^{key}:\s*\n((?:\s+- .*\n?)+)", block[1], re.MULTILINE)
        if listed:
            words[key] = [word.strip() for word in listed[1].split(",") if word.strip()]
        elif items:
            words[key] = [line.strip().removeprefix("- ") for line in items[1].strip().splitlines()]
    return words


def sample(checkout, number):
    """Paths of tests, relative to `test/`."""
    tests = checkout / "test"
    paths = sorted(path.relative_to(tests) for path in tests.rglob("*.js") if not path.stem.endswith("_FIXTURE"))
    return paths[:: max(1, len(paths) // number)][:number]


def outcome(checkout, path, command):
    """The line of one test."""
    text = (checkout / "test" / path).read_text()
    words = metadata(text)
    script = text
    if "raw" not in words["flags"]:
        includes = ["assert.js", "sta.js", "doneprintHandle.js", *words["includes"]]
        script = "\n".join((checkout / "harness" / name).read_text() for name in dict.fromkeys(includes)) + "\n" + text
        # No run-time has `print`; all have `console.log`.
        script = "var print = (text) => console.log(text);\n" + script
        if "onlyStrict" in words["flags"]:
            script = '"use strict";\n' + script
    extension = ".mjs" if "module" in words["flags"] else ".cjs"
    file = pathlib.Path("-".join(path.with_suffix(extension).parts))
    file.write_text(script)
    try:
        done = subprocess.run([*command, str(file)], capture_output=True, stdin=subprocess.DEVNULL, timeout=MAX_SECONDS, check=False)
        printed = (done.stdout + done.stderr).replace(os.getcwd().encode(), b"")
        ended = f"{done.returncode} {hashlib.sha256(printed).hexdigest()[:16]}"
    except subprocess.TimeoutExpired:
        ended = "ran too long"
    return f"{'/'.join(path.parts[:2])}\t{path}\t{ended}"


def main():
    """Prints the lines in the order of the sample."""
    end = sys.argv.index("--")
    checkout, number, command, groups = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:end], set(sys.argv[end + 1 :])
    paths = [path for path in sample(checkout, number) if not groups or "/".join(path.parts[:2]) in groups]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for line in pool.map(lambda path: outcome(checkout, path, command), paths):
            print(line)


if __name__ == "__main__":
    main()
