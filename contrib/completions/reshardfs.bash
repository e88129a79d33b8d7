# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Completions of reshardfs(1) for bash, also behind a comma of -o. The options are those that the installed program's
# --help-all has: "name=VALUE", "name=one|other" or "name".

# _reshardfs_options COMMAND: which lists them
_reshardfs_options() {
    # shellcheck disable=SC2086 # a program and its words
    $1 2>/dev/null | sed -n 's/^  \([a-z_][a-z_]*\(=[^ ]*\)\{0,1\}\)\( .*\)\{0,1\}$/\1/p'
    case $1 in *--help-all) echo ro ;; esac
}

# What may follow "name=", of "name=VALUE": words, or file for a path.
_reshardfs_values() {
    sed -n "s/^$1=//p" | tr '|[' '\n\n' | sed 's/^\(FILE\|FOLDER\)$/file/; /[A-Z:]/d'
}

# The conversion rules that are shipped; reshard is beside reshardfs.
_reshardfs_rules() {
    "${1%fs}" convert list 2>/dev/null | sed '1d; s/ .*//'
}

# The words "before,option=VALUE" that the last piece of $1 may become, without $2; $3 is the program, $4 lists options.
_reshardfs_piece() {
    local before='' piece=$1 name reply options values

    options=$(_reshardfs_options "$4")
    case $piece in *,*) before=${piece%,*}, piece=${piece##*,} ;; esac
    name=${piece%%=*}
    values=$(_reshardfs_values "$name" <<<"$options")
    case $name in
    convert) values+=" $(_reshardfs_rules "$3")" ;;
    src_rules | dst_rules) values+=' tp2 tp4 tp8' ;;
    esac
    case $piece in
    *=*)
        mapfile -t COMPREPLY < <(
            case $values in *file*) compgen -f -P "$before$name=" -- "${piece#*=}" ;; esac
            compgen -P "$before$name=" -W "${values//file/}" -- "${piece#*=}"
        )
        case $values in *file*) compopt -o filenames ;; esac
        ;;
    *)
        # of a single word the whole, and else the name alone
        options=$(sed '/=[a-z0-9]*$/!s/=.*/=/' <<<"$options")
        mapfile -t COMPREPLY < <(compgen -P "$before" -W "$options" -- "$piece")
        ;;
    esac
    compopt -o nospace
    # readline has taken what stands before the last '=' or ':' off the word
    for reply in "${!COMPREPLY[@]}"; do
        COMPREPLY[reply]=${COMPREPLY[reply]#"$2"}
    done
}

# Whether a list of options after -o is being typed.
_reshardfs_is_list() {
    local line=${COMP_LINE:0:COMP_POINT} word

    word=${line##* }
    case $line in *' -o '"$word" | *' -o'"$word") true ;; *) false ;; esac
}

# _reshardfs_list PROGRAM COMMAND: completes it
_reshardfs_list() {
    local line=${COMP_LINE:0:COMP_POINT} word taken

    word=${line##* }                          # as typed, with its '='
    taken=${word%"${COMP_WORDS[COMP_CWORD]}"} # what readline has split off
    [ "${COMP_WORDS[COMP_CWORD]}" = '=' ] && taken=$word
    _reshardfs_piece "$word" "$taken" "$1" "$2"
}

_reshardfs() {
    local line=${COMP_LINE:0:COMP_POINT} word

    COMPREPLY=()
    if _reshardfs_is_list; then
        _reshardfs_list "${COMP_WORDS[0]}" "${COMP_WORDS[0]} --help-all"
        return
    fi
    word=${line##* }
    case $word in
    -*)
        mapfile -t COMPREPLY < <(compgen -W "-o -s -d -f -u --src-strategy --dst-strategy --debug --fd-socket --single-thread \
            --check --help --help-all --version" -- "$word")
        ;;
    *) compopt -o default ;;
    esac
}

complete -F _reshardfs reshardfs
