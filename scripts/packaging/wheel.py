#!/usr/bin/env python3
"""Writes a Python wheel that holds commands and no Python: wheel.py OUTPUT COMMAND… with VERSION, SUMMARY, ARCHITECTURE
and SOURCE_DATE_EPOCH in the environment; OUTPUT is a directory. Files of licences are taken from the working directory.

The commands must be static: the name of the wheel says that they run with any C library. The same input gives the same
bytes. Prints the path; exit status 1 when something cannot be read or written.
"""

import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile

LICENCES = ["LICENSE-MIT", "LICENSE-APACHE", "LICENSES-OF-LIBRARIES"]

output, *commands = map(pathlib.Path, sys.argv[1:])
version, architecture = os.environ["VERSION"], os.environ["ARCHITECTURE"]
moment = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
# Any glibc that Python's installers still know, and any musl.
platforms = [f"manylinux_2_17_{architecture}", f"manylinux2014_{architecture}", f"musllinux_1_1_{architecture}"]
information = f"reorder-{version}.dist-info"

files = [(f"reorder-{version}.data/scripts/{command.name}", command.read_bytes(), 0o755) for command in commands]
files += [(f"{information}/licenses/{name}", pathlib.Path(name).read_bytes(), 0o644) for name in LICENCES]
metadata = ["Metadata-Version: 2.4", "Name: reorder", f"Version: {version}", f"Summary: {os.environ['SUMMARY']}"]
metadata += ["License-Expression: MIT OR Apache-2.0"] + [f"License-File: {name}" for name in LICENCES]
wheel = ["Wheel-Version: 1.0", "Generator: reorder", "Root-Is-Purelib: false"]
wheel += [f"Tag: py3-none-{platform}" for platform in platforms]
for name, lines in [("METADATA", metadata), ("WHEEL", wheel)]:
    files.append((f"{information}/{name}", ("\n".join(lines) + "\n").encode(), 0o644))


def digest(contents):
    return base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).decode().rstrip("=")


record = [f"{name},sha256={digest(contents)},{len(contents)}" for name, contents, _ in files]
record.append(f"{information}/RECORD,,")
files.append((f"{information}/RECORD", ("\n".join(record) + "\n").encode(), 0o644))

path = output / f"reorder-{version}-py3-none-{'.'.join(platforms)}.whl"
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    for name, contents, mode in files:
        entry = zipfile.ZipInfo(name, moment)
        entry.external_attr = (0o100000 | mode) << 16
        entry.create_system = 3  # Unix: otherwise installers do not look at the mode
        archive.writestr(entry, contents, zipfile.ZIP_DEFLATED, 9)
print(path)
