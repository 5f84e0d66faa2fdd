"""Programs do real work while everything below them is permuted: the program, its libraries, the C library and the loader.

Usage: closure.py REORDER DIRECTORY [--seeds 1 2] [--only TEXT]. Works are in closure.works. Each is done twice on the
originals, traced once to see which images it loads, and done again while a private mount shows the permuted
images in place of all of them. Output, status and the files that it leaves must be equal. Permuted images are kept in
DIRECTORY and not made again. Needs root, for the mount. Exit status 1 when a work differs.
"""

import argparse
import collections
import ctypes
import multiprocessing
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from tool_versions import LLVM
from trial import apply

WORKS = pathlib.Path(__file__).parent / "closure.works"
SECONDS = 300
NEW_MOUNTS = 0x20000


def works(only):
    """The command that prepares a home, and the program and command of each work."""
    setup, found = "", []
    for line in WORKS.read_text().replace("$LLVM", LLVM).splitlines():
        program, _, command = line.partition(" ")
        if program == "setup":
            setup = command
        elif program and program != "#" and only in line:
            found.append((program, command))
    return setup, found


def left(home):
    """Names of the files that a work leaves; the work prints their contents unless these always differ, as keys do."""
    names = (path.relative_to(home) for path in sorted(home.rglob("*")))
    return [str(name) for name in names if not any(part.startswith(".") for part in name.parts)]


def do(setup, command, before=()):
    """A work in a new home with a constant name: status, output and names of the files that it leaves."""
    home = pathlib.Path(tempfile.gettempdir(), "redteam-home", "work")
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    surroundings = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(home), "LC_ALL": "C.UTF-8", "TMPDIR": "/tmp", "TZ": "UTC"}
    subprocess.run(["bash", "-c", setup], cwd=home, env=surroundings, check=True)
    try:
        done = subprocess.run([*before, "bash", "-c", command], cwd=home, env=surroundings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
        return done.returncode, done.stdout, left(home)
    except subprocess.TimeoutExpired:
        return None, b"", []


def images_of(setup, program, command):
    """The images below /usr that a work loads: those that it opens, and those that the program is linked with."""
    found = set()
    with tempfile.NamedTemporaryFile("r") as log:
        do(setup, command, ["strace", "-f", "-qq", "-s", "4096", "-e", "trace=execve,open,openat", "-e", "signal=none", "-o", log.name])
        found.update(re.findall(r'"(/(?:usr|bin|lib|lib64|sbin)/[^"]+)"[^\n]* = \d', log.read()))
    linked = subprocess.run(["ldd", shutil.which(program)], capture_output=True, text=True, check=False).stdout
    found.update(re.findall(r"(/\S+)", linked))
    real = {os.path.realpath(path) for path in [*found, shutil.which(program)]}
    return {path for path in real if path.startswith("/usr/") and "/lib/debug/" not in path and is_image(path)}


def is_image(path):
    """Whether this is an ELF program or library."""
    try:
        with open(path, "rb") as file:
            head = file.read(18)
    except OSError:
        return False
    return head[:4] == b"\x7fELF" and head[16:17] in (b"\2", b"\3")


def permute(task):
    """A permuted image in its place below a directory: path and result."""
    reorder, path, seed, directory = task
    output = pathlib.Path(directory, path.removeprefix("/usr/"))
    verdict = output.with_name(output.name + ".result")
    if verdict.exists():
        return path, verdict.read_text()
    output.parent.mkdir(parents=True, exist_ok=True)
    outcome = apply(reorder, path, f"{output}.next", ["--strategy", "random", "--seed", str(seed)])
    result = outcome.result or f"moved {outcome.moved} {outcome.functions}"
    if not outcome.result:
        shutil.copymode(path, f"{output}.next")
        os.rename(f"{output}.next", output)
    verdict.write_text(f"{result} {outcome.detail}".strip())
    return path, verdict.read_text()


def within(directory, function):
    """The result of a function while `directory` is mounted over /usr, in a process of its own."""
    reader, writer = multiprocessing.Pipe(duplex=False)

    def inside():
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(NEW_MOUNTS):
            raise OSError(ctypes.get_errno(), "unshare")
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={directory}:/usr", "/usr"], check=True)
        writer.send(function())

    process = multiprocessing.get_context("fork").Process(target=inside)
    process.start()
    writer.close()
    try:
        return reader.recv()
    except EOFError:
        return None, b"the process with permuted images ended", []
    finally:
        process.join()


def difference(expected, found):
    """The first difference, in words."""
    if expected[0] != found[0]:
        return f"status {expected[0]} became {found[0]}: {found[1][-300:]!r}"
    lines = zip(expected[1].splitlines(), found[1].splitlines(), strict=False)
    changed = next((f"{old!r} became {new!r}" for old, new in lines if old != new), "")
    names = sorted(set(expected[2]) ^ set(found[2]))
    return changed or f"{len(expected[1])} bytes became {len(found[1])}; files {names}"


def main():
    """Runs all works and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reorder", type=os.path.abspath)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--least", type=int, default=1, help="works that must have been compared")
    wanted = parser.parse_args()
    setup, found = works(wanted.only)
    totals, missing = collections.Counter(), []
    for program, command in found:
        if not shutil.which(program, path="/usr/bin:/bin:/usr/sbin:/sbin"):
            missing.append(program)
            continue
        expected, again = do(setup, command), do(setup, command)
        images = sorted(images_of(setup, program, command))
        for seed in wanted.seeds:
            directory = wanted.directory.resolve() / f"seed{seed}"
            with multiprocessing.Pool(wanted.jobs) as pool:
                results = dict(pool.map(permute, [(wanted.reorder, path, seed, directory) for path in images], chunksize=1))
            moved = sum(result.startswith("moved") for result in results.values())
            broken = [f"{path}: {result}" for path, result in results.items() if not result.startswith(("moved", "refused"))]
            for attempt in range(3):
                after = within(directory, lambda: do(setup, command))
                steady = expected == again
                if after == expected or not steady and (after[0], after[1].count(b"\n")) == (expected[0], expected[1].count(b"\n")):
                    break
                again = do(setup, command)
            verdict = "different" if after != expected and steady else "equal" if steady else "equal in length" if after[0] == expected[0] else "different"
            totals[verdict] += 1
            totals["not proven"] += len(broken)
            note = difference(expected, after) if verdict == "different" else ""
            print(f"{verdict}\tseed {seed}\t{program}\t{moved} of {len(images)} images permuted\t{note}", *broken, sep="\n  " if broken else "", flush=True)
    print(f"{sum(totals.values()) - totals['not proven']} runs: " + ", ".join(f"{count} {name}" for name, count in totals.items()) + f"; not installed: {' '.join(missing) or 'none'}")
    return 1 if totals["different"] or totals["not proven"] or totals["equal"] < wanted.least else 0


if __name__ == "__main__":
    sys.exit(main())
