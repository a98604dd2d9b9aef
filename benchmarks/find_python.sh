#!/bin/sh
# An interpreter of a version: find_python.sh 3.12. One on PATH, or one that pyenv keeps but does not show.
for candidate in "python$1" "$(pyenv root 2>/dev/null)/versions/$1".*/bin/python; do
    if "$candidate" -c '' 2>/dev/null; then
        command -v "$candidate"
        exit 0
    fi
done
echo "no Python $1 here: neither python$1 on PATH nor one of pyenv's" >&2
exit 1
