# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Completions of reshard(1) for bash. The commands and their options are those that the installed program's
# --help has.

_reshard_commands() {
    "$1" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p'
}

_reshard_options() {
    "$@" --help 2>/dev/null | grep -oE -e '(^|[ ,[])-(-[a-z][a-z-]*|[a-z]\b)' | grep -oE -e '-[-a-z]+' | sort -u
}

_reshard() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} program=${COMP_WORDS[0]}

    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_reshard_commands "$program") --help --version" -- "$word")
        return
    fi
    case $before in
    strategy)
        mapfile -t COMPREPLY < <(compgen -W "show convert merge new check" -- "$word")
        return
        ;;
    --format)
        mapfile -t COMPREPLY < <(compgen -W "ckpt safetensors pt" -- "$word")
        return
        ;;
    --to)
        case ${COMP_WORDS[1]} in
        get) mapfile -t COMPREPLY < <(compgen -W "npy safetensors" -- "$word") ;;
        *) mapfile -t COMPREPLY < <(compgen -W "ckpt json" -- "$word") ;;
        esac
        return
        ;;
    --dtype)
        mapfile -t COMPREPLY < <(compgen -W "float32 float16 bfloat16 float64 int8 int32" -- "$word")
        return
        ;;
    esac
    case $word in
    -*) mapfile -t COMPREPLY < <(compgen -W "$(_reshard_options "$program" "${COMP_WORDS[1]}")" -- "$word") ;;
    *) compopt -o default ;;
    esac
}

complete -F _reshard reshard
