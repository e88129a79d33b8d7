# One tensor as a file.
$ reshard example work >/dev/null
$ get() { reshard get work/src "$@" -s work/src_strategy.ckpt; }
$ get layer2.bias bias.npy; head -c 80 bias.npy | tail -c 70
{'descr': '<f4', 'fortran_order': False, 'shape': (96,), }            
$ get layer1.weight slice.safetensors -d work/dst_strategy.ckpt --rank 3
$ reshard info slice.safetensors
name           dtype    shape      bytes  offset
layer1.weight  Float32  [192, 48]  36864      88

checkpoint: 1 parameter, 36864 bytes of content in a file of 36952
format: safetensors
types: 1 Float32 (36.0 KiB)
$ get layer1.weight slice.npy -d work/dst_strategy.ckpt --rank 3; reshard export work/src new -s work/src_strategy.ckpt -d work/dst_strategy.ckpt >/dev/null 2>&1
$ reshard get new/rank_3 layer1.weight - | cmp - slice.npy && echo equal
equal
$ get layer2.bias - -d work/dst_strategy.ckpt | cmp - bias.npy && echo equal
equal
$ get learning_rate - --to safetensors | head -c 80 | tail -c 72
{"learning_rate":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}       
$ get layer2.bias half.npy -o dtype=float16; stat -c %s bias.npy half.npy
512
320

# By the name that files show, or else by that of the source.
$ printf '{"layer2.bias": "b"}' >names.json; get b b.npy -o names=names.json; get layer2.bias - -o names=names.json | cmp - b.npy && cmp b.npy bias.npy && echo equal
equal

# hfai's parts have paths.
$ python3 $top_srcdir/tests/golden/save_parts.py saved 3 1000
$ reshard stats saved | awk '{ print $1, $2, $3, $4 }' | head -n 4
name dtype shape min
last Float32 [9, 2]
first.weight Float32 [9, 9]
first.bias Float32 [9] 2
$ reshard get saved first.bias - | head -c 80 | tail -c 70
{'descr': '<f4', 'fortran_order': False, 'shape': (9,), }             

# Errors.
$ get layer2.bia x.npy
reshard: error: work/src: parameter 'layer2.bia': there is no such tensor; try: layer2.bias
(exit 1)
$ get frobnicate x.npy
reshard: error: work/src: parameter 'frobnicate': there is no such tensor; try: reshard info, which lists the names
(exit 1)
$ get layer2.bias bias.npy
reshard: error: bias.npy: is there already; try: another name, or --force to replace it
(exit 1)
$ get layer2.bias x.npy --rank 1
reshard: error: there is no rank 1 of 1; try: -o 'dst_rules=like source' for the ranks of the source
(exit 2)
$ get layer2.bias x.npy --rank 4 -d work/dst_strategy.ckpt
reshard: error: there is no rank 4 of 4; try: ranks from 0 on
(exit 2)
$ get layer2.bias x.ckpt
reshard: error: the name of OUT has no format: 'x.ckpt'; try: --to npy or --to safetensors, or a name that ends so
(exit 2)
$ get layer2.bias x.npy --force; mkdir folder.npy; get layer2.bias folder.npy --force
reshard: error: folder.npy: exists, and is not a file; try: another name
(exit 1)
$ reshard get work/src layer2.bias y.npy
reshard: error: …/work/src: has rank_7, but the source without a strategy has 1 rank; try: src_strategy=FILE, which says how they were cut
(exit 1)
$ reshard get saved frobnicate y.npy
reshard: error: saved: parameter 'frobnicate': there is no such tensor; try: reshard stats, which lists the names
(exit 1)
$ reshard get work/src layer2.bias
reshard: error: get takes a source, a name and a file to write; try: reshard get SRC NAME OUT
(exit 2)
$ script -qc 'reshard get new layer2.bias -' /dev/null </dev/null 2>&1 | tr -d '\r'; ls
reshard: error: a tensor is not written to a terminal; try: a file, or a program behind a pipe
b.npy
bias.npy
folder.npy
half.npy
names.json
new
saved
slice.npy
slice.safetensors
work
x.npy
