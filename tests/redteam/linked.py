"""Programs built elsewhere for x86-64 with CFLAGS=-Wa,-L and LDFLAGS=-Wl,--emit-relocs: their tables after a permutation.

Usage: linked.py REORDER IMAGE… Each image is stripped, permuted in three orders and compared with what its relocations and labels
state. No image is run. Exit status 1 when a word is stale or the command fails.
"""

import pathlib
import subprocess
import sys
import tempfile

import oracle
from trial import apply

SEEDS = ["1", "2", "3"]


def examine(reorder, image, folder):
    """How many words are known of an image, and sentences about the errors."""
    stripped, moved = pathlib.Path(folder, "stripped"), pathlib.Path(folder, "moved")
    known = list(oracle.words(image))
    subprocess.run(["strip", "-o", stripped, image], check=True)
    wrong = []
    for seed in SEEDS:
        outcome = apply(reorder, stripped, moved, ["--strategy", "random", "--seed", seed])
        if outcome.result:
            return len(known), [f"{outcome.result}: {outcome.detail}"]
        sentences = [*oracle.stale(known, moved, oracle.Moves(f"{moved}.map")), *oracle.rewritten(image, stripped, moved)]
        wrong += [f"seed {seed}: {sentence}" for sentence in sentences]
    return len(known), wrong


def main():
    """Examines all images."""
    reorder, *images = sys.argv[1:]
    words = failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for image in images:
            known, wrong = examine(reorder, image, folder)
            words += known
            failures += bool(wrong)
            print(f"{image}: {known} words", *wrong[:5], sep="\n  ", flush=True)
    print(f"{len(images)} images, {words} words of tables, {failures} images with findings")
    return 1 if failures or not words else 0


if __name__ == "__main__":
    sys.exit(main())
