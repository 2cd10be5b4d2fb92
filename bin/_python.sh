# Sourced by the scripts beside it: goes to the clone's root and sets PYTHON to its .venv's Python.
#   . bin/_python.sh; use_python embedded test

find_python() {
    without_venv=""
    for candidate in python3.14 python3.13 python3.12 python3.11 python3 python; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue
        if "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return 0
        fi
        without_venv=$candidate
    done
    if [ -n "$without_venv" ]; then
        echo "$without_venv cannot make virtual environments; install its venv package" \
            "(on Debian and Ubuntu: python3-venv)." >&2
    else
        echo "Python 3.11 or newer is needed and none was found on the PATH." >&2
    fi
    return 1
}

use_python() {
    found=$(find_python) || exit 1
    PYTHON=$("$found" -I "$root/wecom_ops/local/bootstrap.py" "$@") || exit 1
}
