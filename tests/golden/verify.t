# An export of 4 ranks, against the 8 that it was made from.
$ reshard example work >/dev/null; reshard export work/src tree -s work/src_strategy.ckpt -d work/dst_strategy.ckpt >/dev/null
reshard: warning: 1 parameter in no strategy, copied unsliced: rng_state [4] (rank_2 has other bytes than rank_0)
$ reshard verify tree --against work/src -s work/src_strategy.ckpt -d work/dst_strategy.ckpt
tree: 15 tensors, 334.2 KiB: the same as work/src, all 4 ranks agree

# The same list of whole tensors, whatever the sharding; a second time it is compared.
$ reshard verify tree -s work/dst_strategy.ckpt --manifest of4.json
note: rng_state: ranks 1-3 have values of their own; no strategy knows it
tree: 15 tensors, 334.2 KiB: written down in of4.json, all 4 ranks read
$ reshard verify work/src -s work/src_strategy.ckpt --manifest of8.json -j 1
note: rng_state: ranks 1-7 have values of their own; no strategy knows it
work/src: 15 tensors, 334.2 KiB: written down in of8.json, all 8 ranks read
$ cmp of4.json of8.json && head -n 6 of8.json
{
"format": "reshard-tensors",
"version": 1,
"tensors": [
{"name": "global_step", "dtype": "Int32", "shape": [1], "xxh3_128": "1d64fc10dea76bcc67878d2e63872248"},
{"name": "layer1.bias", "dtype": "Float32", "shape": [48], "xxh3_128": "2d08969a7227272d6107daebb298fcb3"},
$ reshard verify work/src -s work/src_strategy.ckpt --manifest of4.json --name 'layer*'
work/src: 6 tensors, 167.1 KiB: as in of4.json, all 8 ranks agree
$ reshard verify tree -s work/dst_strategy.ckpt --name '*.bias' --no-replicas --list
2d08969a7227272d6107daebb298fcb3  layer1.bias
29f18ce976265d48b2a4b7ebf8eac806  layer2.bias
53ac6c54766d4cfc0091b0f1bdd32a57  layer3.bias
859ac71841773b812bd2f8ae242d314c  moments.layer1.bias
462942418e2847288cb5effa27f20d5e  moments.layer2.bias
bf68d686ba8fdd1db5cbba28fa29d609  moments.layer3.bias
tree: 6 tensors, 1.2 KiB: all could be read

# One bit of a part that rank 1 alone holds, one of what all ranks hold, one that no strategy knows.
$ flip() { chmod u+w "$1"; python3 -c "import sys; f = open(sys.argv[1], \"r+b\"); f.seek(int(sys.argv[2])); b = f.read(1)[0]; f.seek(-1, 1); f.write(bytes([b ^ 1]))" "$@"; }
$ cp -r tree bad; flip bad/rank_1/checkpoint_1.ckpt 441; flip bad/rank_2/checkpoint_2.ckpt 36946; flip bad/rank_3/checkpoint_3.ckpt 87058
$ reshard verify bad --against work/src -s work/src_strategy.ckpt -d work/dst_strategy.ckpt
layer1.bias: has other bytes than the source in rank 2, first at [2], …/bad/rank_2/checkpoint_2.ckpt offset 36946
layer1.weight: has other bytes than the source in rank 1, first at [194, 4], …/bad/rank_1/checkpoint_1.ckpt offset 441
rng_state: has other bytes than the source in rank 3, …/bad/rank_3/checkpoint_3.ckpt offset 87058
bad: 15 tensors, 334.2 KiB: not right: 3 tensors
(exit 1)
$ reshard verify bad -s work/dst_strategy.ckpt
layer1.bias: has other bytes than the ranks that hold the same in rank 2, first at [2], …/bad/rank_2/checkpoint_2.ckpt offset 36946
note: rng_state: ranks 1-3 have values of their own; no strategy knows it
bad: 15 tensors, 334.2 KiB: not right: 1 tensor
(exit 1)
$ reshard verify bad -s work/dst_strategy.ckpt --manifest of8.json --name 'layer1.*' --json
{"tree":"bad","against":null,"manifest":"of8.json","equal":false,
"tensors":[
{"name":"layer1.weight","dtype":"Float32","shape":[768, 48],"bytes":147456,"rank_own":false,"xxh3_128":"82ad78d99a1f2b7017faf992e0243fb5","equal":false},
{"name":"layer1.bias","dtype":"Float32","shape":[48],"bytes":192,"rank_own":false,"xxh3_128":"2d08969a7227272d6107daebb298fcb3","equal":false}],
"differences":[
{"what":"replica","name":"layer1.bias","rank":2,"detail":null,"file":"…/bad/rank_2/checkpoint_2.ckpt","offset":36946,"index":[2]},
{"what":"manifest","name":"layer1.weight","rank":null,"detail":"has other bytes than the manifest says","file":null}],
"notes":[]}
(exit 1)

# What is not right is not written down.
$ reshard verify bad -s work/dst_strategy.ckpt --manifest new.json --name layer1.bias; ls new.json
layer1.bias: has other bytes than the ranks that hold the same in rank 2, first at [2], …/bad/rank_2/checkpoint_2.ckpt offset 36946
bad: 1 tensor, 192 bytes: not right: 1 tensor
ls: cannot access 'new.json': No such file or directory
(exit 2)

# Another type; tensors and ranks that are not there.
$ reshard export work/src half -s work/src_strategy.ckpt -d work/dst_strategy.ckpt -o 'dtype=*.bias=float16' >/dev/null
reshard: warning: 1 parameter in no strategy, copied unsliced: rng_state [4] (rank_2 has other bytes than rank_0)
$ reshard verify half --against work/src -s work/src_strategy.ckpt -d work/dst_strategy.ckpt --name 'layer[12].bias'
layer1.bias: has another dtype or shape in ranks 0-3: Float16 [48], not Float32 [48]
layer2.bias: has another dtype or shape in ranks 0-3: Float16 [96], not Float32 [96]
half: 2 tensors, 288 bytes: not right: 2 tensors
(exit 1)
$ reshard verify half --against work/src -s work/src_strategy.ckpt -d work/dst_strategy.ckpt -o 'dtype=*.bias=float16'
half: 15 tensors, 333.6 KiB: the same as work/src, all 4 ranks agree
$ echo '{"layer2.bias": null, "layer1.bias": "first.bias"}' >names.json
$ reshard export work/src few -s work/src_strategy.ckpt -d work/dst_strategy.ckpt -o names=names.json >/dev/null
reshard: warning: 1 parameter in no strategy, copied unsliced: rng_state [4] (rank_2 has other bytes than rank_0)
$ cp -f few/rank_1/checkpoint_1.ckpt tree/rank_1/; reshard verify tree --against work/src -s work/src_strategy.ckpt -d work/dst_strategy.ckpt
reshard: warning: the checkpoints of pipeline stage 0 do not list the same parameters, as after remove_redundancy: each is read from a rank that has it
first.bias: should not be there in rank 1
layer1.bias: is missing in rank 1
layer2.bias: is missing in rank 1
tree: 16 tensors, 334.4 KiB: not right: 3 tensors
(exit 1)

# Ranks that are missing or damaged are findings, and the rest is compared: rank by rank where a tensor has no whole.
$ reshard export work/src new -s work/src_strategy.ckpt -d work/dst_strategy.ckpt >/dev/null 2>&1; rm -r tree; cp -r new tree
$ against() { reshard verify "$@" --against work/src -s work/src_strategy.ckpt -d work/dst_strategy.ckpt; }
$ rm -r tree/rank_1; against tree
rank 1: there is no checkpoint of it
tree: 15 tensors, 334.2 KiB: not right: 1 rank
(exit 1)
$ flip tree/rank_0/checkpoint_0.ckpt 441; flip tree/rank_2/checkpoint_2.ckpt 36946; flip tree/rank_3/checkpoint_3.ckpt 87058; against tree
rank 1: there is no checkpoint of it
layer1.bias: has other bytes than the source in rank 2, first at [2], …/tree/rank_2/checkpoint_2.ckpt offset 36946
layer1.weight: has other bytes than the source in rank 0, …/tree/rank_0/checkpoint_0.ckpt offset 441
rng_state: has other bytes than the source in rank 3, …/tree/rank_3/checkpoint_3.ckpt offset 87058
tree: 15 tensors, 334.2 KiB: not right: 3 tensors, 1 rank
(exit 1)
$ against tree --json --name layer1.weight
{"tree":"tree","against":"work/src","manifest":null,"equal":false,
"tensors":[],
"differences":[
{"what":"rank","name":null,"rank":1,"detail":"there is no checkpoint of it","file":null},
{"what":"bytes","name":"layer1.weight","rank":0,"detail":null,"file":"…/tree/rank_0/checkpoint_0.ckpt","offset":441}],
"notes":[]}
(exit 1)
$ reshard verify tree -s work/dst_strategy.ckpt --name 'layer1.*'
rank 1: there is no checkpoint of it
layer1.bias: has other bytes than the ranks that hold the same in rank 2, first at [2], …/tree/rank_2/checkpoint_2.ckpt offset 36946
layer1.weight: is incomplete: rank 1 is missing
tree: 1 tensor, 192 bytes: not right: 2 tensors, 1 rank
(exit 1)
$ reshard verify tree --against work/src -s work/src_strategy.ckpt --tree-options src_strategy=work/dst_strategy.ckpt --name 'layer1.*'
rank 1: there is no checkpoint of it
layer1.bias: has other bytes than the source in rank 2, first at [2], …/tree/rank_2/checkpoint_2.ckpt offset 36946
layer1.weight: is incomplete: rank 1 is missing
tree: 1 tensor, 192 bytes: not right: 2 tensors, 1 rank
(exit 1)
$ against tree --manifest of8.json --name 'layer1.*'
rank 1: there is no checkpoint of it
layer1.bias: has other bytes than the source in rank 2, first at [2], …/tree/rank_2/checkpoint_2.ckpt offset 36946
layer1.weight: is incomplete: rank 1 is missing
layer1.weight: has other bytes than the source in rank 0, …/tree/rank_0/checkpoint_0.ckpt offset 441
tree: 2 tensors, 144.2 KiB: not right: 2 tensors, 1 rank
(exit 1)
$ rm -r tree; cp -r new tree; chmod -R u+w tree; truncate -s 5000 tree/rank_0/checkpoint_0.ckpt; against tree
rank 0: …/tree/rank_0/checkpoint_0.ckpt: offset 41: parameter 'layer1.weight': the file is truncated in a tensor: it ends after 4959 of its 36864 bytes; try: compare the file with its original, or save it again
tree: 15 tensors, 334.2 KiB: not right: 1 rank
(exit 1)
$ reshard verify tree -s work/dst_strategy.ckpt --manifest none.json --name '*2.weight'; ls none.json
rank 0: …/tree/rank_0/checkpoint_0.ckpt: offset 41: parameter 'layer1.weight': the file is truncated in a tensor: it ends after 4959 of its 36864 bytes; try: compare the file with its original, or save it again
layer2.weight: is incomplete: rank 0 is damaged
moments.layer2.weight: is incomplete: rank 0 is damaged
tree: 0 tensors, 0 bytes: not right: 2 tensors, 1 rank
ls: cannot access 'none.json': No such file or directory
(exit 2)
$ cp new/rank_0/checkpoint_0.ckpt tree/rank_0; printf '\377\377\377\377' | dd of=tree/rank_3/checkpoint_3.ckpt conv=notrunc status=none; against tree
rank 3: …/tree/rank_3/checkpoint_3.ckpt: offset 0: not a protobuf field: the file is damaged, or not a checkpoint; try: compare the file with its original, or save it again
tree: 15 tensors, 334.2 KiB: not right: 1 rank
(exit 1)
$ reshard verify tree -s work/dst_strategy.ckpt --name '*2.weight'
rank 3: …/tree/rank_3/checkpoint_3.ckpt: offset 0: not a protobuf field: the file is damaged, or not a checkpoint; try: compare the file with its original, or save it again
layer2.weight: is incomplete: rank 3 is damaged
moments.layer2.weight: is incomplete: rank 3 is damaged
tree: 0 tensors, 0 bytes: not right: 2 tensors, 1 rank
(exit 1)
$ rm tree/rank_3/checkpoint_3.ckpt; ln -s checkpoint_3.ckpt tree/rank_3; against tree
rank 3: there is no checkpoint of it
tree: 15 tensors, 334.2 KiB: not right: 1 rank
(exit 1)
$ rm -r tree/rank_*; against tree
reshard: error: …/tree: the folder has no rank_N folder in it; try: give the folder that holds rank_0, rank_1 and so on
(exit 2)
$ rm -r half/rank_2; reshard verify half -s work/dst_strategy.ckpt --name learning_rate
rank 2: there is no checkpoint of it
half: 1 tensor, 4 bytes: not right: 1 rank
(exit 1)

# Rules take the names of tensors from the source, whatever the tree has.
$ rules='dst_ranks=2,dst_rules=*.weight: axis 0 over all;*: whole'
$ reshard export work/src two -s work/src_strategy.ckpt -o "$rules" >/dev/null 2>&1; chmod -R u+w two; truncate -s 300 two/rank_0/checkpoint_0.ckpt
$ reshard verify two --against work/src -s work/src_strategy.ckpt -o "$rules"
rank 0: …/two/rank_0/checkpoint_0.ckpt: offset 41: parameter 'layer1.weight': the file is truncated in a tensor: it ends after 259 of its 73728 bytes; try: compare the file with its original, or save it again
two: 15 tensors, 334.2 KiB: not right: 1 rank
(exit 1)
$ truncate -s 300 two/rank_1/checkpoint_1.ckpt; reshard verify two --against work/src -s work/src_strategy.ckpt -o "$rules"
reshard: error: …/two/rank_0/checkpoint_0.ckpt: offset 41: parameter 'layer1.weight': the file is truncated in a tensor: it ends after 259 of its 73728 bytes; try: compare the file with its original, or save it again
(exit 2)

# Stages of a pipeline: one without a file, and what another one has, too.
$ reshard strategy convert work/dst_strategy.ckpt whole.json; python3 -c "
> import json
> whole = json.load(open('whole.json'))
> for stage in 0, 1:
>     for key, name in ('parallel_layout_item', 'layer3'), ('parallel_strategy_item', ''):
>         part = {k: v for k, v in whole[key].items() if not name or (name in k) == (stage == 1) or k == 'layer1.weight'}
>         whole[key + str(stage)] = {k: dict(v, stage=stage) if 'stage' in v else v for k, v in part.items()}
>     part = {'current_stage': stage} | {key: whole[key + str(stage)] for key in ('parallel_layout_item', 'parallel_strategy_item')}
>     json.dump(part, open(f'part{stage}.json', 'w'))"
$ reshard strategy merge pipe.json part0.json part1.json; reshard export work/src piped -s work/src_strategy.ckpt -d pipe.json >/dev/null 2>&1; rm -r piped/rank_5
$ reshard verify piped --against work/src -s work/src_strategy.ckpt -d pipe.json
rank 5: there is no checkpoint of it
piped: 15 tensors, 334.2 KiB: not right: 1 rank
(exit 1)
$ flip piped/rank_6/checkpoint_6.ckpt 441; reshard verify piped --against work/src -s work/src_strategy.ckpt -d pipe.json
rank 5: there is no checkpoint of it
layer1.weight: has other bytes than the source in rank 6, …/piped/rank_6/checkpoint_6.ckpt offset 441
piped: 15 tensors, 334.2 KiB: not right: 1 tensor, 1 rank
(exit 1)
$ reshard verify piped -s pipe.json --name layer1.weight
rank 5: there is no checkpoint of it
layer1.weight: is incomplete: not all of it is left in pipeline stage 1
piped: 1 tensor, 144.0 KiB: not right: 1 tensor, 1 rank
(exit 1)
$ rm -r piped/rank_[467]; reshard verify piped --against work/src -s work/src_strategy.ckpt -d pipe.json
ranks 4-7: there is no checkpoint of it
piped: 15 tensors, 334.2 KiB: not right: 4 ranks
(exit 1)
$ reshard verify piped -s pipe.json
ranks 4-7: there is no checkpoint of it
layer3.bias: is incomplete: rank 4 is missing
layer3.weight: is incomplete: rank 4 is missing
moments.layer3.bias: is incomplete: rank 4 is missing
moments.layer3.weight: is incomplete: rank 4 is missing
note: rng_state: ranks 1-3 have values of their own; no strategy knows it
piped: 11 tensors, 325.1 KiB: not right: 4 tensors, 4 ranks
(exit 1)

# Of the source: what nobody has left cannot be compared.
$ cp -r new source; chmod -R u+w source; truncate -s 5000 source/rank_1/checkpoint_1.ckpt; flip new/rank_0/checkpoint_0.ckpt 36946
$ reshard verify new --against source -s work/dst_strategy.ckpt -d work/dst_strategy.ckpt
reshard: warning: pipeline stage 0 has a damaged checkpoint: parameters in that one alone are left out: …/source/rank_1/checkpoint_1.ckpt: offset 41: parameter 'layer1.weight': the file is truncated in a tensor: it ends after 4959 of its 36864 bytes; try: compare the file with its original, or save it again
rank 1 of the source: …/source/rank_1/checkpoint_1.ckpt: offset 41: parameter 'layer1.weight': the file is truncated in a tensor: it ends after 4959 of its 36864 bytes; try: compare the file with its original, or save it again
layer1.bias: has other bytes than the source in rank 0, first at [2], …/new/rank_0/checkpoint_0.ckpt offset 36946
layer1.weight: cannot be compared: rank 1 of the source is damaged
layer2.weight: cannot be compared: rank 1 of the source is damaged
layer3.weight: cannot be compared: rank 1 of the source is damaged
moments.layer1.weight: cannot be compared: rank 1 of the source is damaged
moments.layer2.weight: cannot be compared: rank 1 of the source is damaged
moments.layer3.weight: cannot be compared: rank 1 of the source is damaged
rng_state: cannot be compared: rank 1 of the source is damaged
new: 15 tensors, 334.2 KiB: not right: 8 tensors, 1 rank of the source
(exit 1)
$ rm -r source/rank_1; reshard verify new --against source -s work/dst_strategy.ckpt -d work/dst_strategy.ckpt --name 'layer1.*' --json
reshard: warning: rank_1 is missing; its slices are read from a replica, rank_0
reshard: warning: parameter 'global_step': rank_1 is missing; the same value in all other ranks of its stage is used
reshard: warning: parameter 'learning_rate': rank_1 is missing; the same value in all other ranks of its stage is used
{"tree":"new","against":"source","manifest":null,"equal":false,
"tensors":[
{"name":"layer1.weight","dtype":"Float32","shape":[768, 48],"bytes":147456,"rank_own":false,"xxh3_128":"e352f0f2aea22aed22590019b6e1d9ff","equal":false},
{"name":"layer1.bias","dtype":"Float32","shape":[48],"bytes":192,"rank_own":false,"xxh3_128":"14b51efe4e72198f7b9d584c6a7ee84f","equal":false}],
"differences":[
{"what":"bytes","name":"layer1.bias","rank":0,"detail":null,"file":"…/new/rank_0/checkpoint_0.ckpt","offset":36946,"index":[2]},
{"what":"uncompared","name":"layer1.weight","rank":null,"detail":"rank 1 of the source is missing","file":null}],
"notes":[]}
(exit 1)
$ reshard verify new --against source -s work/dst_strategy.ckpt --tree-options src_strategy=work/dst_strategy.ckpt --name 'layer1.*'
layer1.bias: has other bytes than the source in rank 0, first at [2], …/new/rank_0/checkpoint_0.ckpt offset 36946
layer1.weight: cannot be compared: rank 1 of the source is missing
new: 2 tensors, 144.2 KiB: not right: 2 tensors
(exit 1)

# What is in the files beside tensors: checksums, headers, metadata, lists. Other options give other files.
$ reshard export work/src sums -s work/src_strategy.ckpt -d work/dst_strategy.ckpt -o crc >/dev/null
reshard: warning: 1 parameter in no strategy, copied unsliced: rng_state [4] (rank_2 has other bytes than rank_0)
$ reshard verify sums --against work/src -s work/src_strategy.ckpt -d work/dst_strategy.ckpt -o crc
sums: 15 tensors, 334.2 KiB: the same as work/src, all 4 ranks agree
$ reshard stats sums -s work/dst_strategy.ckpt -o crc --name layer3.bias | tail -n 1
1 tensor, 12 numbers: 0 NaN, 0 infinite
$ reshard diff sums work/src -s work/dst_strategy.ckpt -d work/src_strategy.ckpt -o crc
15 tensors are the same
$ reshard verify sums -s work/dst_strategy.ckpt -o crc
note: rng_state: ranks 1-3 have values of their own; no strategy knows it
sums: 15 tensors, 334.2 KiB: all 4 ranks read
$ reshard verify sums --against work/src -s work/src_strategy.ckpt -d work/dst_strategy.ckpt
note: ranks 0-3 are laid out differently from a mount with these options: the tensors were compared, and nothing else
sums: 15 tensors, 334.2 KiB: the same as work/src, all 4 ranks read
$ flip sums/rank_1/checkpoint_1.ckpt $(($(stat -c %s sums/rank_1/checkpoint_1.ckpt) - 1))
$ reshard verify sums --against work/src -s work/src_strategy.ckpt -d work/dst_strategy.ckpt -o crc
rank 1: other bytes than a mount shows, beside the tensors, …/sums/rank_1/checkpoint_1.ckpt offset 87090
sums: 15 tensors, 334.2 KiB: not right: 1 file
(exit 1)
$ reshard verify sums --against work/src -s work/src_strategy.ckpt -d work/dst_strategy.ckpt -o crc --json | tail -n 3
"differences":[
{"what":"frame","name":null,"rank":1,"detail":null,"file":"…/sums/rank_1/checkpoint_1.ckpt","offset":87090}],
"notes":[]}
$ reshard export work/src meta -s work/src_strategy.ckpt -d work/dst_strategy.ckpt --format safetensors >/dev/null
reshard: warning: 1 parameter in no strategy, copied unsliced: rng_state [4] (rank_2 has other bytes than rank_0)
$ reshard verify meta --against work/src -s work/src_strategy.ckpt -d work/dst_strategy.ckpt -o format=safetensors
meta: 15 tensors, 334.2 KiB: the same as work/src, all 4 ranks agree
$ flip meta/rank_3/checkpoint_3.safetensors 35; head -c 38 meta/rank_3/checkpoint_3.safetensors | tail -c 30; echo
{"__metadata__":{"format":"ls"
$ reshard verify meta --against work/src -s work/src_strategy.ckpt -d work/dst_strategy.ckpt -o format=safetensors
rank 3: other bytes than a mount shows, beside the tensors, …/meta/rank_3/checkpoint_3.safetensors offset 35
meta: 15 tensors, 334.2 KiB: not right: 1 file
(exit 1)
$ reshard export work/src hf -s work/src_strategy.ckpt -o view=huggingface,file_size=100K >/dev/null
reshard: warning: 9 values of the training beside the weights are left out: 'global_step' and others; only=* shows them
$ reshard verify hf --against work/src -s work/src_strategy.ckpt -o view=huggingface,file_size=100K
hf: 6 tensors, 167.1 KiB: the same as work/src
$ reshard verify hf --against work/src -s work/src_strategy.ckpt
global_step: is missing
learning_rate: is missing
moments.layer1.bias: is missing
moments.layer1.weight: is missing
moments.layer2.bias: is missing
moments.layer2.weight: is missing
moments.layer3.bias: is missing
moments.layer3.weight: is missing
rng_state: is missing
hf: 6 tensors, 167.1 KiB: not right: 9 tensors
(exit 1)
$ flip hf/model.safetensors.index.json 8; head -n 2 hf/model.safetensors.index.json; reshard verify hf --against work/src -s work/src_strategy.ckpt -o view=huggingface,file_size=100K
{
  "met`data": {
model.safetensors.index.json offset 8: other bytes than a mount shows, beside the tensors
hf: 6 tensors, 167.1 KiB: not right: 1 file
(exit 1)

# One device, and a parameter that only the source's strategy has: rank 0's slice is what a mount shows.
$ reshard strategy new one.json --rules '*: whole' --ranks 1 -s work/src_strategy.ckpt
$ sed -i 's/"layer3.weight"/"of.another.network"/' one.json; reshard export work/src one -s work/src_strategy.ckpt -d one.json >/dev/null
reshard: warning: 1 parameter in only one strategy, copied unsliced: layer3.weight [48, 12] (a slice of it)
reshard: warning: 1 parameter in no strategy, copied unsliced: rng_state [4] (rank_2 has other bytes than rank_0)
$ reshard verify one --against work/src -s work/src_strategy.ckpt -d one.json 2>/dev/null
one: 15 tensors, 332.0 KiB: the same as work/src

# Rules instead of a strategy.
$ reshard export work/src ruled -s work/src_strategy.ckpt -o 'dst_ranks=2,dst_rules=*.weight: axis 0 over all;*: whole' >/dev/null
reshard: warning: 1 parameter in no strategy, copied unsliced: rng_state [4] (rank_2 has other bytes than rank_0)
$ reshard verify ruled --against work/src -s work/src_strategy.ckpt -o 'dst_ranks=2,dst_rules=*.weight: axis 0 over all;*: whole'
ruled: 15 tensors, 334.2 KiB: the same as work/src, all 2 ranks agree
$ flip ruled/rank_1/checkpoint_1.ckpt 441; reshard verify ruled --against work/src -s work/src_strategy.ckpt -o 'dst_ranks=2,dst_rules=*.weight: axis 0 over all;*: whole'
layer1.weight: has other bytes than the source in rank 1, first at [386, 4], …/ruled/rank_1/checkpoint_1.ckpt offset 441
ruled: 15 tensors, 334.2 KiB: not right: 1 tensor
(exit 1)

# Other names: the destination's strategy may have those of the source, as in the export. All have others, or one is in
# common, or two are exchanged; rules are made for the source's. The lists are those of whole tensors.
$ python3 -c "import json; names = [f'{m}layer{i}.{p}' for m in ('', 'moments.') for i in (1, 2, 3) for p in ('weight', 'bias')]; all = {n: 'a.' + n for n in names}; [json.dump(d, open(n + '.json', 'w')) for n, d in (('others', all), ('common', {k: v for k, v in all.items() if k != 'layer3.bias'}), ('exchanged', {'layer1.weight': 'layer3.weight', 'layer3.weight': 'layer1.weight', 'layer2.weight': None}))]"
$ sums() { sed -n 's/.*"shape": \(.*\), "xxh3_128": "\(.*\)".*/\2 \1/p' "$1" | sort; }; sums of8.json >whole.txt
$ named() { name=$1; shift; reshard export work/src $name -s work/src_strategy.ckpt "$@" >/dev/null 2>&1; reshard verify $name --against work/src -s work/src_strategy.ckpt "$@" --manifest $name.sums; sums $name.sums | diff whole.txt -; }
$ for names in others common exchanged; do named by_$names -d work/dst_strategy.ckpt -o names=$names.json; done
by_others: 15 tensors, 334.2 KiB: the same as work/src, written down in by_others.sums, all 4 ranks agree
by_common: 15 tensors, 334.2 KiB: the same as work/src, written down in by_common.sums, all 4 ranks agree
by_exchanged: 14 tensors, 316.2 KiB: the same as work/src, written down in by_exchanged.sums, all 4 ranks agree
1d0
< 154df0676bf09e369c60cd5640855d51 [48, 96]
(exit 1)
$ for names in others common exchanged; do named ruled_$names -o "names=$names.json,dst_ranks=2,dst_rules=layer[12].weight: axis 0 over all;*: whole"; done
ruled_others: 15 tensors, 334.2 KiB: the same as work/src, written down in ruled_others.sums, all 2 ranks agree
ruled_common: 15 tensors, 334.2 KiB: the same as work/src, written down in ruled_common.sums, all 2 ranks agree
ruled_exchanged: 14 tensors, 316.2 KiB: the same as work/src, written down in ruled_exchanged.sums, all 2 ranks agree
1d0
< 154df0676bf09e369c60cd5640855d51 [48, 96]
(exit 1)
$ named shown_others -d work/dst_strategy.ckpt -o names=others.json,view=dcp
shown_others: 15 tensors, 334.2 KiB: the same as work/src, written down in shown_others.sums
$ flip by_common/rank_1/checkpoint_1.ckpt 441; reshard verify by_common --against work/src -s work/src_strategy.ckpt -d work/dst_strategy.ckpt -o names=common.json
a.layer1.weight: has other bytes than the source in rank 1, first at [194, 3], …/by_common/rank_1/checkpoint_1.ckpt offset 441
by_common: 15 tensors, 334.2 KiB: not right: 1 tensor
(exit 1)

# A stage of a pipeline by itself: its strategy tells which, and so which ranks are its.
$ mkdir stage; for rank in 0 1 2 3 4 5 6 7; do cp -r work/src/rank_$rank stage/rank_$((rank + 8)); done
$ reshard strategy convert work/src_strategy.ckpt stage1.json; sed -i 's/"stage":0/"stage":1/g' stage1.json
$ reshard strategy new all.json --rules '*: whole' --ranks 4 -s work/src_strategy.ckpt; sed -i 's/{"layer1.bias"/{"head":{"dev_matrix":[4],"field":0,"opt_weight_shard_size":0,"opt_weight_shard_step":0,"tensor_map":[-1]},"layer1.bias"/' all.json
$ reshard export stage parts -s stage1.json -d all.json >/dev/null; ls parts/rank_0
reshard: warning: 1 parameter in no strategy, copied unsliced: rng_state [4] (rank_10 has other bytes than rank_8)
checkpoint_0_part1.ckpt
$ reshard verify parts --against stage -s stage1.json -d all.json
parts: 15 tensors, 334.2 KiB: the same as stage, all 4 ranks agree
$ reshard stats stage -s stage1.json | tail -n 1
15 tensors, 85566 numbers: 0 NaN, 0 infinite
$ reshard verify stage -s stage1.json
note: rng_state: ranks 9-15 have values of their own; no strategy knows it
stage: 15 tensors, 334.2 KiB: all 8 ranks read
$ cp -r work/src/* stage; reshard verify parts --against stage -s stage1.json -d all.json
parts: 15 tensors, 334.2 KiB: the same as stage, all 4 ranks agree
$ reshard diff stage work/src -s stage1.json -d work/src_strategy.ckpt
reshard: warning: the source strategy has stage 1 alone: only rank_8 to rank_15 are read
15 tensors are the same
$ reshard verify work/src -s stage1.json
note: rng_state: ranks 1-7 have values of their own; no strategy knows it
work/src: 15 tensors, 334.2 KiB: all 8 ranks read

# An unsharded export, and one file of it.
$ reshard export work/src whole -s work/src_strategy.ckpt --format safetensors >/dev/null
reshard: warning: 1 parameter in no strategy, copied unsliced: rng_state [4] (rank_2 has other bytes than rank_0)
$ reshard verify whole --against work/src -s work/src_strategy.ckpt
note: the files are laid out differently from a mount with these options: the tensors were compared, and nothing else
whole: 15 tensors, 334.2 KiB: the same as work/src
$ reshard verify whole/rank_0/checkpoint_0.safetensors --manifest of8.json
whole/rank_0/checkpoint_0.safetensors: 15 tensors, 334.2 KiB: as in of8.json

# A rank of a tree whose ranks hold the same is missing; and one is damaged.
$ for rank in 0 1 3; do mkdir -p same/rank_$rank; cp whole/rank_0/*.safetensors same/rank_$rank; done
$ reshard verify same --against work/src -s work/src_strategy.ckpt --tree-options 'src_ranks=4,src_rules=*: whole'
rank 2: there is no checkpoint of it
same: 15 tensors, 334.2 KiB: not right: 1 rank
(exit 1)
$ mkdir same/rank_2; head -c 3000 whole/rank_0/checkpoint_0.safetensors >same/rank_2/checkpoint_0.safetensors
$ reshard verify same -o 'src_ranks=4,src_rules=*: whole' 2>/dev/null
rank 2: …/same/rank_2/checkpoint_0.safetensors: parameter 'layer1.weight': the file is truncated: the tensor ends at 147648, and the file has 1784 bytes of data; try: compare the file with its original, or save it again
same: 15 tensors, 334.2 KiB: not right: 1 rank
(exit 1)
$ cp whole/rank_0/*.safetensors same/rank_2; flip same/rank_2/checkpoint_0.safetensors 342000
$ reshard verify same -o 'src_ranks=4,src_rules=*: whole'
moments.layer3.weight: has other bytes than the ranks that hold the same in rank 2, first at [65, 7], …/same/rank_2/checkpoint_0.safetensors offset 342000
same: 15 tensors, 334.2 KiB: not right: 1 tensor
(exit 1)

# Usage and damage.
$ reshard verify
reshard: error: verify takes the path of a tree; try: reshard verify TREE --against SRC
(exit 2)
$ reshard verify a b
reshard: error: 'b' is a second path; try: --against SRC for the source
(exit 2)
$ reshard verify tree -d work/dst_strategy.ckpt
reshard: error: -d is the strategy of TREE beside --against SRC only; try: -s FILE for the strategy of TREE
(exit 2)
$ reshard verify tree --write
reshard: error: --write writes a manifest, and none is named; try: --manifest FILE
(exit 2)
$ reshard verify tree --tree-options strict
reshard: error: --tree-options goes with --against SRC only; try: -o
(exit 2)
$ reshard verify work/src -s work/src_strategy.ckpt --manifest names.json
reshard: error: names.json: offset 50: not a manifest that can be read: not a manifest of reshard verify; try: another FILE, or --write to replace it
(exit 2)
$ reshard verify work/src
reshard: error: …/work/src: has rank_7, but the source without a strategy has 1 rank; try: -s FILE, the strategy that says how they were cut
(exit 2)
$ reshard verify whole --manifest nowhere/m.json
reshard: error: nowhere/m.json: cannot be written: No such file or directory; try: a folder that you may write to
(exit 2)
$ chmod -R u+w whole; truncate -s -20 whole/rank_0/checkpoint_0.safetensors; reshard verify whole
reshard: error: …/whole/rank_0/checkpoint_0.safetensors: parameter 'global_step': the file is truncated: the tensor ends at 342248, and the file has 342244 bytes of data; try: compare the file with its original, or save it again
(exit 2)
$ reshard verify work/src -s work/src_strategy.ckpt --name 'layr*'
reshard: error: no name is like 'layr*'; try: --name 'layer1.weight'
(exit 2)
$ reshard verify work/src -s work/src_strategy.ckpt --name '*.wieght' --name x
reshard: error: no name is like '*.wieght', nor like those of the other options --name; try: --name 'layer1.weight'
(exit 2)
$ reshard verify work/src -s work/src_strategy.ckpt --name 'layr*' --name global_step
work/src: 1 tensor, 4 bytes: all 8 ranks agree
$ reshard verify nothing
reshard: error: nothing: the source does not exist; try: check the path
(exit 2)

# A part of hfai's that is missing or damaged is a finding, too; what the others hold is then not compared.
$ python3 $top_srcdir/tests/golden/save_parts.py saved 3 1000; cp -r saved hurt
$ reshard verify hurt --against saved
hurt: 10 tensors, 3.5 KiB: the same as saved, with 11 values
$ truncate -s -300 hurt/PART_001.pt; reshard verify hurt --against saved
rank 1: hurt/PART_001.pt: the file has no zip directory: it is truncated, or not written by torch.save; try: compare the file with its original, or save it again
hurt: 0 tensors, 0 bytes: not right: 1 rank
(exit 1)
$ rm hurt/PART_002.pt; reshard verify hurt --manifest tensors.json --json; ls tensors.json
{"tree":"hurt","against":null,"manifest":"tensors.json","equal":false,
"tensors":[],
"differences":[
{"what":"rank","name":null,"rank":1,"detail":"hurt/PART_001.pt: the file has no zip directory: it is truncated, or not written by torch.save; try: compare the file with its original, or save it again","file":null},
{"what":"rank","name":null,"rank":2,"detail":"there is no such part","file":null}],
"notes":[]}
ls: cannot access 'tensors.json': No such file or directory
(exit 2)
$ reshard verify saved --against hurt
rank 1 of the source: hurt/PART_001.pt: the file has no zip directory: it is truncated, or not written by torch.save; try: compare the file with its original, or save it again
rank 2 of the source: there is no such part
saved: 0 tensors, 0 bytes: not right: 2 ranks of the source
(exit 1)
$ rm hurt/PART_00[01].pt; reshard verify hurt
reshard: error: …/hurt: the folder has no rank_N folder in it; try: give the folder that holds rank_0, rank_1 and so on
(exit 2)
