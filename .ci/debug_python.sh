#!/bin/sh
# The path of a debug build of CPython, one with sys.gettotalrefcount; fails if none can be had. DEBUG_PYTHON names one;
# else python3-dbg where it is installed; else Debian's package is unpacked into the folder $1, and nothing is installed.
set -eu
debug() { "$1" -c 'import sys; sys.gettotalrefcount()' 2>/dev/null; }

for found in "${DEBUG_PYTHON:-}" python3-dbg; do
    if [ -n "$found" ] && debug "$found"; then command -v "$found"; exit; fi
done
root=$1/root
wrapper=$1/python
if [ -x "$wrapper" ] && debug "$wrapper"; then echo "$wrapper"; exit; fi

command -v apt-get >/dev/null && command -v dpkg >/dev/null || exit 1
# Debian's lists may be missing or old; only root can mend that.
version() { apt-cache depends python3-dbg 2>/dev/null | sed -n 's/.*Depends: \(python3\.[0-9]*\)-dbg$/\1/p'; }
if [ -z "$(version)" ]; then apt-get update -qq >&2 || exit 1; fi
name=$(version)
[ -n "$name" ] || exit 1
packages="$name-dbg lib$name-dbg lib$name-dev $name-minimal lib$name-minimal lib$name-stdlib"
rm -rf "$1"
mkdir -p "$1/debs" "$root"
get() { (cd "$1/debs" && apt-get download -qq -o APT::Sandbox::User=root $packages >&2); }
get "$1" || { apt-get update -qq >&2 && get "$1"; } || exit 1
for package in "$1"/debs/*.deb; do dpkg -x "$package" "$root"; done
rm -rf "$1/debs"
root=$(cd "$root" && pwd)
cat >"$wrapper" <<END
#!/bin/sh
export PYTHONHOME="$root/usr" CPATH="$root/usr/include"
exec "$root/usr/bin/$name-dbg" "\$@"
END
chmod +x "$wrapper"
debug "$wrapper"
echo "$wrapper"
