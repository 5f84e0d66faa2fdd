"""The versions of tools that have one in their name, as `scripts/tool-versions` states them."""

import pathlib
import re

FILE = pathlib.Path(__file__).parents[2] / "scripts/tool-versions"
VERSIONS = dict(re.findall(r"^export (\w+)=(.*)$", FILE.read_text(), re.MULTILINE))
# Such as -22: the end of the name of every tool of LLVM.
LLVM = VERSIONS["LLVM"]
