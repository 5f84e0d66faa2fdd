"""What `reorder apply --format json`, on standard input, says it moved or copied."""

import json
import sys

facts = json.load(sys.stdin)
copies = facts.get("clones")
if copies:
    print(f"{copies['fragments']} fragments of {copies['functions']} functions copied")
else:
    print(f"{facts['functions_moved']} of {facts['functions']} functions moved")
