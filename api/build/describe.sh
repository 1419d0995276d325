#!/bin/sh
# Prints the commit of this tree as package build parses it: [TAG-COMMITS-g]COMMIT[-dirty]. Prints nothing if git does not know the tree.
cd "$(dirname "$0")/../.." || exit
GIT_CEILING_DIRECTORIES=$(dirname "$PWD") # a repository around an unpacked archive knows nothing of it
export GIT_CEILING_DIRECTORIES
described=$(git describe --tags --long --always --abbrev=40 --match='v[0-9]*') || exit
changed=$(git --no-optional-locks status --porcelain --untracked-files=normal) || exit
echo "$described${changed:+-dirty}"
