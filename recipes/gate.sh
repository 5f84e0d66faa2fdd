#!/usr/bin/env bash
# Builds, records the starts and runs the gate; exit status 1 is a finding, 2 means that the gate could not run.
# Reports lie in gate/ whatever the outcome is.
set -euo pipefail

make
rm -rf gate
mkdir gate
reorder record
reorder gate --export json=gate/gate.json --export markdown=gate/gate.md --export junit=gate/gate.xml
