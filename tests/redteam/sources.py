"""Programs from other sources: csmith's, and those that check themselves in Debian's package of GCC's sources."""

import functools
import pathlib
import re
import subprocess

from choices import Choices
from tool_versions import VERSIONS
from trial import Program

SOURCE = pathlib.Path("/usr/src", VERSIONS["GCC_SOURCE"])
# Folders of GCC's tests, and the language of their files.
FOLDERS = {"gcc.c-torture/execute": "c", "gcc.dg/torture": "c", "gcc.dg/tree-prof": "c", "g++.dg/eh": "cpp", "g++.dg/torture": "cpp",
           "g++.dg/opt": "cpp", "g++.dg/init": "cpp", "g++.dg/inherit": "cpp", "g++.old-deja/g++.eh": "cpp", "g++.old-deja/g++.mike": "cpp", "g++.dg/coroutines/torture": "cpp"}
# Tests of other processors, of several files, or that must not compile.
UNFIT = re.compile(r"dg-error|dg-skip-if|dg-require|dg-additional-sources|target \{? ?(?!\*|x86|i\?86)|dg-do (compile|assemble|link|preprocess)")


def unpacked(directory):
    """The folder of GCC's tests, unpacked once."""
    folder = pathlib.Path(directory, "gcc-tests")
    if not folder.is_dir():
        fresh = folder.with_suffix(".next")
        fresh.mkdir(parents=True, exist_ok=True)
        patterns = [f"*/gcc/testsuite/{name}/*" for name in FOLDERS]
        [archive] = SOURCE.glob("gcc-*-dfsg.tar.xz")
        subprocess.run(["tar", "xJf", archive, "-C", fresh, "--strip-components=3", "--wildcards", *patterns], check=True)
        fresh.rename(folder)
    return folder


@functools.cache
def tests(directory):
    """All of GCC's tests that are programs: path and language, in a constant order."""
    folder, found = unpacked(directory), []
    for name, language in FOLDERS.items():
        for path in sorted((folder / name).rglob("*.[cC]")):
            text = path.read_text(errors="replace")
            if "main" in text and not UNFIT.search(text):
                found.append((path, language))
    return found


def options(path):
    """The options that a test asks for, of those that are harmless together."""
    found = re.findall(r'dg-(?:additional-)?options "([^"]*)"', path.read_text(errors="replace"))
    return [word for words in found for word in words.split() if word.startswith(("-std=", "-fno-strict", "-fwrapv", "-fnon-call-exceptions", "-fexceptions"))]


def torture(directory, seed, folder=None):
    """One of GCC's tests, which are used in place, or None when there are no more."""
    found = tests(directory)
    if seed >= len(found):
        return None
    path, language = found[seed]
    # Most were written before C required declarations.
    return Program([path], language, [], extra=[*(["-std=gnu89"] if language == "c" else []), *options(path)], sign=b"")


def csmith(_, seed, folder):
    """A program of csmith, written into the folder."""
    path = pathlib.Path(folder, "csmith.c")
    choices = Choices(f"csmith {seed}")
    size = ["--max-funcs", str(choices.randint(4, 14)), "--max-block-depth", str(choices.randint(2, 5)), "--max-expr-complexity", str(choices.randint(3, 10))]
    flags = choices.some(["--inline-function", "--computed-goto", "--int8", "--no-packed-struct", "--no-bitfields", "--builtins", "--no-volatiles"])
    flags = [flag for flag in flags if flag not in ("--computed-goto", "--int8", "--builtins")]
    subprocess.run(["csmith", "-s", str(seed + 1), "-o", path, *size, *flags], check=True, stdout=subprocess.DEVNULL)
    return Program([path], "c", [], extra=["-I/usr/include/csmith"], sign=b"checksum")
