#!/usr/bin/env python3
"""Prints the licences of all crates that the commands are compiled from, with the texts that must be shipped with them:
licences.py TARGET. Each text appears once, after the crates that contain it. Exit status 1 when cargo fails.
"""

import json
import pathlib
import subprocess
import sys

target = sys.argv[1]


def cargo(*words):
    return subprocess.run(["cargo", *words, "--locked"], check=True, text=True, stdout=subprocess.PIPE).stdout


packages = ["--package", "reorder-functions", "--package", "reorder-linker-plugin"]
tree = cargo("tree", *packages, "--edges", "normal", "--target", target, "--prefix", "none", "--format", "{p}")
used = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
known = json.loads(cargo("metadata", "--format-version", "1", "--filter-platform", target))["packages"]
# Our own are next to this file.
crates = [crate for crate in known if crate["source"] and (crate["name"], "v" + crate["version"]) in used]
crates.sort(key=lambda crate: (crate["name"], crate["version"]))

texts = {}
print("The commands are compiled from these libraries, beside Rust's own (MIT OR Apache-2.0):\n")
for crate in crates:
    name = f"{crate['name']} {crate['version']}"
    print(f"{name}: {crate['license']}")
    folder = pathlib.Path(crate["manifest_path"]).parent
    # Libraries in C are in folders of the crates that bind them.
    for path in sorted(folder.glob("*")) + sorted(folder.glob("*/*")):
        if path.is_file() and path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE")):
            text = path.read_text(errors="replace")
            # For zstd the other choice; for xz its tools, which are not compiled here.
            if text.lstrip().startswith("GNU ") or "GNU GENERAL PUBLIC LICENSE" in text[:200].upper():
                continue
            texts.setdefault(" ".join(text.split()), (text, []))[1].append(name)
for text, names in texts.values():
    print("\n" + "-" * 80 + "\n" + ", ".join(dict.fromkeys(names)) + "\n\n" + text.strip())
