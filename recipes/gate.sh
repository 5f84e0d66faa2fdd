#!/usr/bin/env bash
# Builds, records the scenarios and runs the gate; exit status 1 is a finding, 2 means that the gate could not run.
# Reports are in gate/ after any outcome.
set -euo pipefail

make
rm -rf gate
mkdir gate
reorder record
reorder gate --export json=gate/gate.json --export markdown=gate/gate.md --export junit=gate/gate.xml
