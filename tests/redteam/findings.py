"""Keeps findings: a folder for each, with sources, commands and the difference."""

import pathlib
import shutil

from reduce import write
from trial import HOST, lines

# More findings of one kind, or kinds of the same parts, add little: minimising takes longer than finding.
EXAMPLES, KINDS = 2, 5


def examples(directory, title):
    """How many findings of this kind are kept."""
    return len(list(pathlib.Path(directory).glob(f"{escaped(title)}.*")))


def is_known(directory, case):
    """Whether enough findings of a case, or of its parts, are kept."""
    parts = "+".join(sorted(set(case.parts)))
    return examples(directory, case.title) >= EXAMPLES or len(list(pathlib.Path(directory).glob(f"{escaped(parts)}_*"))) >= KINDS


def escaped(title):
    """A title as a file name."""
    return "".join(letter if letter.isalnum() or letter in "_+-=" else "." for letter in title)[:150]


def keep(directory, reorder, case, outcome):
    """Writes a finding, unless enough of its kind are known; gives its folder."""
    if is_known(directory, case):
        return None
    number = examples(directory, case.title)
    folder = pathlib.Path(directory, f"{escaped(case.title)}.{number}")
    folder.mkdir(parents=True, exist_ok=True)
    program = write(case, folder)
    for path in program.files:
        if pathlib.Path(path).is_absolute() and folder not in pathlib.Path(path).parents:
            shutil.copy(path, folder)
    text = [f"{outcome.result}: {outcome.detail}", "", f"parts: {' '.join(case.parts)} of {case.source} program {case.language} {case.seed}",
            f"build: {case.build.describe()}", "", *(f"    {line}" for line in lines(reorder, case.build, program, case.words))]
    if case.build.kind == "shared":
        (folder / "host.c").write_text(HOST)
        text.insert(-3, "    gcc host.c -o host" if case.build.machine == "x86_64" else "    aarch64-linux-gnu-gcc host.c -o host")
    for word in case.words:
        if word.endswith(".order"):
            shutil.copy(word, folder)
    (folder / "README").write_text("\n".join(text) + "\n")
    return folder
