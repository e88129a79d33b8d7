# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Completions of reshard(1) for bash. The commands and their options are those that the installed program's
# --help has.

# shellcheck source=/dev/null # the options of views, by the file beside this one: reshard.bash, or reshard as installed
. "${BASH_SOURCE[0]%reshard*}reshardfs${BASH_SOURCE[0]##*reshard}"

_reshard_commands() {
    "$1" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p'
}

_reshard_options() {
    "$@" --help 2>/dev/null | grep -oE -e '(^|[ ,[])-(-[a-z][a-z-]*|[a-z]\b)' | grep -oE -e '-[-a-z]+' | sort -u
}

# The number of operands that were typed before the word at hand: options have a value.
_reshard_operands() {
    local word skip='' n=0

    for word in "${COMP_WORDS[@]:2:COMP_CWORD-2}"; do
        case $skip$word in
        -*) skip=yes ;;
        yes*) skip='' ;;
        *) n=$((n + 1)) ;;
        esac
    done
    echo "$n"
}

# The names of tensors in the first path that was typed after the command: info reads headers alone. Only plain names,
# as compgen expands words: a name in a file could be a command.
_reshard_names() {
    local word skip='' source=''

    for word in "${COMP_WORDS[@]:2}"; do
        if [ -n "$skip" ]; then
            skip=''
        elif [[ $word == -* ]]; then
            skip=yes
        elif [ -e "$word" ]; then
            source=$word
            break
        fi
    done
    [ -z "$source" ] || "$1" info "$source" 2>/dev/null | sed -n '2,/^$/s/ .*//p' |
        grep -xE '[A-Za-z0-9_.:@+-]+'
}

_reshard() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} program=${COMP_WORDS[0]}

    COMPREPLY=()
    if _reshardfs_is_list; then
        _reshardfs_list "$program" "$program help options"
        return
    fi
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_reshard_commands "$program") --help --version" -- "$word")
        return
    fi
    case $before in
    strategy)
        mapfile -t COMPREPLY < <(compgen -W "show convert merge new check" -- "$word")
        return
        ;;
    convert)
        if [ "$COMP_CWORD" -eq 2 ]; then
            mapfile -t COMPREPLY < <(compgen -W "list check draft" -- "$word")
            return
        fi
        ;;
    check)
        if [ "${COMP_WORDS[1]}" = convert ]; then
            mapfile -t COMPREPLY < <(compgen -f -- "$word"; compgen -W "$(_reshardfs_rules "$program")" -- "$word")
            return
        fi
        ;;
    --param | --name)
        mapfile -t COMPREPLY < <(compgen -W "$(_reshard_names "$program")" -- "$word")
        return
        ;;
    --format)
        mapfile -t COMPREPLY < <(compgen -W "ckpt safetensors pt gguf" -- "$word")
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
    case $word:$(_reshard_operands):${COMP_WORDS[*]:1} in
    -*) mapfile -t COMPREPLY < <(compgen -W "$(_reshard_options "$program" "${COMP_WORDS[1]}")" -- "$word") ;;
    *:1:'get '* | *:2:'strategy show '*) mapfile -t COMPREPLY < <(compgen -W "$(_reshard_names "$program")" -- "$word") ;;
    *) compopt -o default ;;
    esac
}

complete -F _reshard reshard
