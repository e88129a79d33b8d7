# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Completions of reshardfs(1) for bash, also behind a comma of -o.

_reshardfs_names="src_strategy= dst_strategy= src_rules= dst_rules= src_ranks= dst_ranks= rank_dir= file= files=
    group_info= step= epoch= entry= segmented segmented_skip= check=crc follow_links key_file= key_env= key_fd= key_mode= format=
    view= file_size= names= dtype= crc nshards= large_size= uneven_steps zip_crc prefix= cache= index_cache= strict
    control= io= nonempty allow_other allow_root allow_decrypted default_permissions auto_unmount noexec max_threads=
    sandbox= fsname= subtype= debug log_level= config= ro"

_reshardfs_values() {
    case $1 in
    format) echo "ckpt safetensors pt" ;;
    view) echo "ranks huggingface unified" ;;
    io) echo "auto direct cached" ;;
    control) echo "hide show no" ;;
    sandbox) echo "auto on log off" ;;
    log_level) echo "error warning info debug" ;;
    step) echo all ;;
    check) echo crc ;;
    esac
}

# The words "before,option=VALUE" that the last piece of $1 may become.
_reshardfs_piece() {
    local before='' piece=$1 name reply

    case $piece in *,*) before=${piece%,*}, piece=${piece##*,} ;; esac
    case $piece in
    src_strategy=* | dst_strategy=* | src_rules=* | dst_rules=* | files=* | group_info=* | key_file=* | names=* | \
        config=* | index_cache=*)
        name=${piece%%=*}
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -P "$before$name=" -- "${piece#*=}")
        compopt +o filenames
        compopt -o nospace
        ;;
    *=*)
        name=${piece%%=*}
        mapfile -t COMPREPLY < <(compgen -P "$before$name=" -W "$(_reshardfs_values "$name")" -- "${piece#*=}")
        compopt -o nospace
        ;;
    *)
        mapfile -t COMPREPLY < <(compgen -P "$before" -W "$_reshardfs_names" -- "$piece")
        compopt -o nospace
        ;;
    esac
    # readline has taken what stands before the last '=' or ':' off the word
    if [ ${#COMPREPLY[@]} -gt 0 ] && declare -F __ltrim_colon_completions >/dev/null; then
        for reply in "${!COMPREPLY[@]}"; do
            COMPREPLY[reply]=${COMPREPLY[reply]#"$2"}
        done
    fi
}

_reshardfs() {
    local line=${COMP_LINE:0:COMP_POINT} word taken

    COMPREPLY=()
    word=${line##* }               # as typed, with its '='
    taken=${word%"${COMP_WORDS[COMP_CWORD]}"} # what readline has split off
    [ "${COMP_WORDS[COMP_CWORD]}" = '=' ] && taken=$word
    case $line in
    *' -o '"$word" | *' -o'"$word")
        _reshardfs_piece "$word" "$taken"
        return
        ;;
    esac
    case $word in
    -*) mapfile -t COMPREPLY < <(compgen -W "-o -f -d -s --check --help --version" -- "$word") ;;
    *) compopt -o default ;;
    esac
}

complete -F _reshardfs reshardfs
