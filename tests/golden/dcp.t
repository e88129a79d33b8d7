# A checkpoint as torch's distributed one, and back: view=dcp, and the folder that it makes as a source.
$ reshard example work >/dev/null && cd work
$ reshard export src direct -s src_strategy.ckpt -d dst_strategy.ckpt >/dev/null 2>&1

# over three files by rows, in small chunks
$ reshard export src dcp -s src_strategy.ckpt -o view=dcp,dst_ranks=3,chunk_size=8K >/dev/null 2>&1
$ reshard info dcp
name                   dtype    shape      chunks  cuts      bytes
layer1.weight          Float32  [768, 48]      21  [21, 1]  147456
layer1.bias            Float32  [48]            3  [3]         192
layer2.weight          Float32  [48, 96]        3  [3, 1]    18432
layer2.bias            Float32  [96]            3  [3]         384
layer3.weight          Float32  [96, 12]        3  [3, 1]     4608
layer3.bias            Float32  [12]            3  [3]          48
moments.layer1.weight  Float32  [768, 48]      21  [21, 1]  147456
moments.layer1.bias    Float32  [48]            3  [3]         192
moments.layer2.weight  Float32  [48, 96]        3  [3, 1]    18432
moments.layer2.bias    Float32  [96]            3  [3]         384
moments.layer3.weight  Float32  [96, 12]        3  [3, 1]     4608
moments.layer3.bias    Float32  [12]            3  [3]          48
global_step            Int32    [1]             1  [1]           4
learning_rate          Float32  []              1  []            4
rng_state              Int32    [4]             2  [2]          16

file          chunks   bytes  file bytes
__0_0.distcp      27  114096      139374
__1_0.distcp      25  114088      137498
__2_0.distcp      24  114080      136560

checkpoint: of torch.distributed.checkpoint, 15 tensors in 76 chunks; 3 files of 413432 bytes
types: 2 Int32 (20 bytes), 13 Float32 (334.2 KiB)
export: 4 of 4 files completed, of …/work/src
$ reshard info dcp --json --name layer2.bias
{"kind":"boxes","path":"dcp","shown":1,"dtypes":[{"dtype":"Int32","parameters":2,"bytes":20},{"dtype":"Float32","parameters":13,"bytes":342244}],"format":"torch.distributed.checkpoint","parameters":15,"chunks":76,"files":3,"file_bytes":413432,"aside":[],"export":{"files":4,"total_files":4,"source":"…/work/src","wrong_files":0},"findings":[],"tensors":[{"name":"layer2.bias","dtype":"Float32","shape":[96],"chunks":3,"cuts":[3],"bytes":384}],"rows":[{"file":"__0_0.distcp","chunks":27,"bytes":114096,"file_bytes":139374},
{"file":"__1_0.distcp","chunks":25,"bytes":114088,"file_bytes":137498},
{"file":"__2_0.distcp","chunks":24,"bytes":114080,"file_bytes":136560}]}
$ reshard verify dcp --against src -s src_strategy.ckpt
note: the files are laid out differently from a mount with these options: the tensors were compared, and nothing else
dcp: 15 tensors, 334.2 KiB: the same as src

# an entry that is no dict, but the beginning of names, leaves tensors out
$ reshard export dcp part -o view=huggingface,entry=layer1
reshard: warning: entry=layer1 is no dict of the state, but the beginning of names: others are left out, such as 'layer2.weight'; try: without entry, if both are of the model
…/part: 1 file written, …

# by rank, each slice once
$ reshard export src by_rank -s src_strategy.ckpt -d dst_strategy.ckpt -o view=dcp >/dev/null 2>&1
$ reshard info by_rank --name '*.weight'
name                   dtype    shape      chunks  cuts     bytes
layer1.weight          Float32  [768, 48]       4  [4, 1]  147456
layer2.weight          Float32  [48, 96]        4  [4, 1]   18432
layer3.weight          Float32  [96, 12]        4  [4, 1]    4608
moments.layer1.weight  Float32  [768, 48]       4  [4, 1]  147456
moments.layer2.weight  Float32  [48, 96]        4  [4, 1]   18432
moments.layer3.weight  Float32  [96, 12]        4  [4, 1]    4608

file          chunks  bytes  file bytes
__0_0.distcp      15  86520      100470
__1_0.distcp       6  85248       90876
__2_0.distcp       6  85248       90876
__3_0.distcp       6  85248       90876

checkpoint: of torch.distributed.checkpoint, 15 tensors in 33 chunks; 4 files of 373098 bytes
shown: 6 of 15 parameters, 340992 bytes
types: 2 Int32 (20 bytes), 13 Float32 (334.2 KiB)
export: 5 of 5 files completed, of …/work/src
$ reshard diff by_rank dcp
15 tensors are the same

# with the options that made it, every byte of every file is compared
$ as_made() { reshard verify "$@" --against src -s src_strategy.ckpt -d dst_strategy.ckpt 2>/dev/null; }
$ as_made by_rank -o view=dcp
by_rank: 15 tensors, 334.2 KiB: the same as src
$ reshard export src mf -s src_strategy.ckpt -d dst_strategy.ckpt -o view=mindformers >/dev/null 2>&1; as_made mf -o view=mindformers
mf: 15 tensors, 334.2 KiB: the same as src
$ reshard verify mf --against src -s src_strategy.ckpt -o view=mindformers,dst_rules='*: whole',dst_ranks=4 2>/dev/null
note: the files are laid out differently from a mount with these options: the tensors were compared, and nothing else
mf: 15 tensors, 334.2 KiB: the same as src
$ change() { rm -rf changed; cp -r $1 changed; chmod -R u+w changed; python3 -c "import sys; p = 'changed/' + sys.argv[1]; b = open(p, 'rb').read(); open(p, 'wb').write(eval(sys.argv[2]))" "$2" "$3"; }
$ change by_rank .metadata "b.replace(b'__3_0.distcp', b'__2_0.distcp')"; as_made changed -o view=dcp
.metadata offset 4322: other bytes than a mount shows, beside the tensors
layer1.weight: has other bytes than the source, first at [576, 0], …/work/changed/__2_0.distcp offset 448
layer2.weight: has other bytes than the source, first at [36, 0], …/work/changed/__2_0.distcp offset 38250
layer3.weight: has other bytes than the source, first at [72, 0], …/work/changed/__2_0.distcp offset 43796
moments.layer1.weight: has other bytes than the source, first at [576, 0], …/work/changed/__2_0.distcp offset 45886
moments.layer2.weight: has other bytes than the source, first at [36, 0], …/work/changed/__2_0.distcp offset 83688
moments.layer3.weight: has other bytes than the source, first at [72, 0], …/work/changed/__2_0.distcp offset 89234
changed: 15 tensors, 334.2 KiB: not right: 6 tensors, 1 file
(exit 1)
$ change by_rank __1_0.distcp "b.replace(b'byteorder', b'byteOrder')"; as_made changed -o view=dcp
__1_0.distcp offset 277: other bytes than a mount shows, beside the tensors
changed: 15 tensors, 334.2 KiB: not right: 1 file
(exit 1)
$ change mf metadata.json "b.replace(b'true', b'null')"; as_made changed -o view=mindformers
metadata.json offset 133: other bytes than a mount shows, beside the tensors
changed: 15 tensors, 334.2 KiB: not right: 1 file
(exit 1)
$ change mf metadata.json "b + b' '"; as_made changed -o view=mindformers
metadata.json: is of another size than in a mount
changed: 15 tensors, 334.2 KiB: not right: 1 file
(exit 1)

# of a parameter in no strategy it has what a mount shows; without the view, the strategy would be that of its ranks
$ flip() { change $1 $2 "(lambda d: d[:$3] + bytes([d[$3] ^ 1]) + d[$3 + 1:])(bytearray(b))"; }
$ state() { python3 -c "import sys; b = open(sys.argv[1], 'rb').read(); print(b.index(open('direct/rank_0/checkpoint_0.ckpt', 'rb').read()[-16:]))" $1; }
$ at=$(state mf/opt-0000000-0000004.safetensors); flip mf opt-0000000-0000004.safetensors $at; as_made changed -o view=mindformers | sed "s/ $at$/ AT/"
rng_state: has other bytes than the source, first at [0], …/work/changed/opt-0000000-0000004.safetensors offset AT
changed: 15 tensors, 334.2 KiB: not right: 1 tensor
$ reshard verify mf --against src -s src_strategy.ckpt -d dst_strategy.ckpt
reshard: error: TREE describes its own cuts, and takes no strategy but by its view; try: -o view=dcp, view=hyper_parallel or view=mindformers, with which such a tree is made
(exit 2)

# a parameter that only the source's strategy has is in such a view what rank 0 has of it
$ reshard strategy new one.json --rules '*: whole' --ranks 2 -s src_strategy.ckpt; sed -i 's/"layer3.weight"/"of.another.network"/' one.json
$ for view in dcp mindformers; do reshard export src one_$view -s src_strategy.ckpt -d one.json -o view=$view >/dev/null 2>&1; reshard verify one_$view --against src -s src_strategy.ckpt -d one.json -o view=$view 2>/dev/null; done
one_dcp: 15 tensors, 332.0 KiB: the same as src
one_mindformers: 15 tensors, 332.0 KiB: the same as src

# under another strategy: of what differs between ranks (rng_state), it has that of rank 0
$ reshard export dcp back -d dst_strategy.ckpt --format ckpt >/dev/null
$ reshard verify back --against src -s src_strategy.ckpt -d dst_strategy.ckpt
rng_state: has other bytes than the source in ranks 1-3, …/work/back/rank_1/checkpoint_1.ckpt offset 87058
back: 15 tensors, 334.2 KiB: not right: 1 tensor
(exit 1)
$ cmp back/rank_0/checkpoint_0.ckpt direct/rank_0/checkpoint_0.ckpt && echo the same
the same

# files of ranks follow the source where no format is asked for: PyTorch's read safetensors, and MindSpore's .ckpt
$ reshard export dcp front -d dst_strategy.ckpt >/dev/null; reshard export dcp asked -d dst_strategy.ckpt --format safetensors >/dev/null
$ diff -r front asked -x 'reshard-manifest*' && ls front/rank_3
checkpoint_3.safetensors
$ for from in front/rank_3/checkpoint_3.safetensors one_mindformers src/rank_0/checkpoint_0.ckpt; do reshard export $from by_default -o 'prefix=a,only=layer1.bias' >/dev/null; ls by_default/rank_0; rm -r by_default; done
a0.ckpt
a0.ckpt
a0.ckpt
$ reshard export dcp front -d dst_strategy.ckpt -o crc
reshard: error: option crc is for .ckpt files: in a safetensors file the checksum would stand before the data that it sums up; try: leave crc out, or -o format=ckpt
(exit 2)
$ reshard export dcp layers -d dst_strategy.ckpt -o order=layers >/dev/null; ls layers/rank_0
checkpoint_0.safetensors

# where the bytes are
$ reshard explain by_rank --param layer2.weight
layer2.weight: Float32 [48, 96], 18.0 KiB
source       4 chunks, axis 0 in 4
destination  whole; slices of [48, 96]

rank  slice   shape     bytes  from files  source bytes
   0  [:, :]  [48, 96]  18432  0-3                18432

1 rank of the destination together: 18432 bytes (18.0 KiB) from 4 source files, each byte counted once
$ reshard explain by_rank --param layer2.weight --svg - | grep -o '[^<>]*</text'
layer2.weight</text
Float32 [48, 96], from 4 files to 1 rank</text
source: 4 chunks, axis 0 in 4</text
destination: whole</text
[:, :], 4.5 KiB</text
[0:12, :]</text
[:, :], 4.5 KiB</text
[12:24, :]</text
[:, :], 4.5 KiB</text
[24:36, :]</text
[:, :], 4.5 KiB</text
[36:48, :]</text
file 0</text
file 1</text
file 2</text
file 3</text
rank 0 [:, :]</text
Each colour is what one source file gives, and on the right where its bytes go: 4 pieces, 18.0 KiB, each slice once.</text
Left are the files that are read, and places in their tensors; right are places in the whole tensor.</text
$ reshard explain dcp -d dst_strategy.ckpt --format ckpt --param layer2.weight --rank 1
layer2.weight: Float32 [48, 96], 18.0 KiB
source       3 chunks, axis 0 in 3
destination  devices [4], map [-1, -1], optimizer shard 4: axis 0 in 4; slices of [12, 96]
rank_1       [12:24, :]: Float32 [12, 96], 4608 bytes from offset 37167 of rank_1/checkpoint_1.ckpt

from file  of the tensor  of its slice  to         offset   run  times  every  bytes
        0  [12:16, :]     [12:16, :]    [0:4, :]    61776  1536      1          1536
        1  [16:24, :]     [0:8, :]      [4:12, :]   57168  3072      1          3072

file 0  __0_0.distcp
file 1  __1_0.distcp

2 pieces from 2 source files, 4608 bytes
$ reshard explain dcp -o view=dcp,dst_ranks=3 --param layer2.weight
reshard: error: without a strategy view=dcp divides rows over its files, and ranks have no slices; try: -d, or -o dst_rules=
(exit 2)
$ reshard stats dcp --name layer3.bias
name         dtype    shape      min     max       mean    std  nan  inf  zeros
layer3.bias  Float32  [12]   -0.7081  0.9833  -0.001032  0.375    0    0      0

1 tensor, 12 numbers: 0 NaN, 0 infinite
$ reshard get by_rank layer1.bias a.npy && reshard get src layer1.bias b.npy -s src_strategy.ckpt && cmp a.npy b.npy

# what is refused
$ reshard info dcp -o step=1
reshard: error: the source describes itself by '.metadata': rank_dir, file, group_info, segmented, step, epoch and keys have no effect; try: the folder alone
(exit 2)
$ reshard info dcp -o rank_dir=node%d
reshard: error: the source describes itself by '.metadata': rank_dir, file, group_info, segmented, step, epoch and keys have no effect; try: the folder alone
(exit 2)
$ reshard verify dcp -s src_strategy.ckpt
reshard: error: the source describes its own cuts, and takes no strategy; try: leave src_strategy and src_rules out
(exit 2)
$ reshard export src x -s src_strategy.ckpt -o view=dcp,format=pt
reshard: error: view=dcp is made of the files of torch.distributed.checkpoint; try: leave format= out
(exit 2)
$ reshard export src x -s src_strategy.ckpt -o chunk_size=1M
reshard: error: option chunk_size is for view=dcp; try: -o view=dcp
(exit 2)
$ mkdir torn; cp dcp/__0_0.distcp torn; reshard info torn
reshard: error: …/work/torn: the folder has .distcp files and no '.metadata'; try: a save that has ended: torch.distributed.checkpoint writes .metadata last
(exit 1)
$ cp -r dcp bad; chmod -R u+w bad; head -c 500 dcp/.metadata >bad/.metadata; reshard verify bad
reshard: error: …/work/bad/.metadata: offset 486: the pickle in it is damaged: it has no end; try: compare the file with its original, or save the checkpoint again
(exit 2)
$ cp dcp/.metadata bad/.metadata; truncate -s 60000 bad/__1_0.distcp; reshard verify bad
reshard: error: …/work/bad/__1_0.distcp: parameter 'layer2.weight': lies at offset 56720 with 7082 bytes, and the file has only 60000; try: compare the file with its original, or save the checkpoint again
(exit 2)

# a save into the folder that broke off; copies without their times look the same
$ cp -rp dcp old; chmod -R u+w old; rm old/reshard-manifest.json; touch -d '2001-09-09 01:46:40 UTC' old/*.distcp old/.metadata; reshard verify old
old: 15 tensors, 334.2 KiB: all could be read
$ touch -d '2001-09-09 01:46:41.5 UTC' old/__2_0.distcp; reshard verify old
reshard: warning: …/work/old/__2_0.distcp: the file is of 2001-09-09 01:46:41.500 UTC, newer than '.metadata' of 2001-09-09 01:46:40.000 UTC, which is written last: it may be of another save, or a copy that lost its times; try: cp -a
old: 15 tensors, 334.2 KiB: all could be read
$ reshard verify old -o strict
reshard: error: …/work/old/__2_0.distcp: the file is of 2001-09-09 01:46:41.500 UTC, newer than '.metadata' of 2001-09-09 01:46:40.000 UTC, which is written last; try: a save that has ended, copied with its times (cp -a)
(exit 2)
$ reshard export old x -o strict,format=pt
reshard: error: …/work/old/__2_0.distcp: the file is of 2001-09-09 01:46:41.500 UTC, newer than '.metadata' of 2001-09-09 01:46:40.000 UTC, which is written last; try: a save that has ended, copied with its times (cp -a)
(exit 1)
$ touch -d '2001-09-09 01:46:42 UTC' old/.metadata; cp -p old/.metadata old/.metadata.tmp; reshard verify old
reshard: warning: …/work/old: '.metadata.tmp' of 2001-09-09 01:46:42.000 UTC is beside '.metadata' of 2001-09-09 01:46:42.000 UTC: a later save into the folder did not end, and may have replaced files
old: 15 tensors, 334.2 KiB: all could be read
$ reshard verify old -o strict
reshard: warning: …/work/old: '.metadata.tmp' of 2001-09-09 01:46:42.000 UTC is beside '.metadata' of 2001-09-09 01:46:42.000 UTC: a later save into the folder did not end, and may have replaced files
reshard: error: …/work/old: '.metadata.tmp' of 2001-09-09 01:46:42.000 UTC is beside '.metadata' of 2001-09-09 01:46:42.000 UTC: a later save into the folder did not end, and may have replaced files; try: a folder whose last save has ended
(exit 2)

# files that are gone
$ rm bad/__1_0.distcp; reshard info bad | tail -n 4
export: 4 of 4 files completed, of …/work/src
note: log: …/work/bad/__1_0.distcp: the file is not there; try: mount again
odd: missing: 1 of the files that the metadata names is not there
note: export: 1 file of the manifest is not there, or not as long as it says: __1_0.distcp

# HyperParallel's folder of a strategy, back, and what does not fit
$ reshard export src hyper -s src_strategy.ckpt -d dst_strategy.ckpt -o view=hyper_parallel >/dev/null 2>&1
$ ls -A hyper; reshard info hyper --name layer1.weight; reshard verify hyper --against src -s src_strategy.ckpt -d dst_strategy.ckpt -o view=hyper_parallel
.metadata
_rank0_.safetensors
_rank1_.safetensors
_rank2_.safetensors
_rank3_.safetensors
reshard-manifest.json
name           dtype    shape      chunks  cuts     bytes
layer1.weight  Float32  [768, 48]       4  [4, 1]  147456

file                 chunks  bytes  file bytes
_rank0_.safetensors      15  86520       87712
_rank1_.safetensors       6  85248       85776
_rank2_.safetensors       6  85248       85776
_rank3_.safetensors       6  85248       85776

checkpoint: of HyperParallel, 15 tensors in 33 chunks; 4 files of 345040 bytes
shown: 1 of 15 parameters, 147456 bytes
types: 2 Int32 (20 bytes), 13 Float32 (334.2 KiB)
export: 5 of 5 files completed, of …/work/src
hyper: 15 tensors, 334.2 KiB: the same as src
$ reshard export hyper again -o view=huggingface >/dev/null && reshard verify again --against hyper -o view=huggingface
reshard: warning: 9 values of the training beside the weights are left out: 'moments.layer1.weight' and others; only=* shows them
again: 6 tensors, 167.1 KiB: the same as hyper
$ reshard verify hyper --against src -s src_strategy.ckpt -d dst_strategy.ckpt
reshard: error: TREE describes its own cuts, and takes no strategy but by its view; try: -o view=dcp, view=hyper_parallel or view=mindformers, with which such a tree is made
(exit 2)
$ reshard export src no -s src_strategy.ckpt -o view=hyper_parallel,dst_ranks=2,chunk_size=1M
reshard: error: option chunk_size is for view=dcp; try: -o view=dcp
(exit 2)
$ reshard export src no -s src_strategy.ckpt -o view=hyper_parallel,dst_ranks=2,format=ckpt
reshard: error: view=hyper_parallel is made of safetensors files; try: leave format= out
(exit 2)
$ reshard explain src --rank 0 --param layer1.weight -s src_strategy.ckpt -o view=hyper_parallel,dst_ranks=2
reshard: error: without a strategy view=hyper_parallel divides rows over its files, and ranks have no slices; try: -d, or -o dst_rules=
(exit 2)
$ reshard export hyper no -s src_strategy.ckpt -o view=huggingface
reshard: error: the source describes its own cuts, and takes no strategy; try: leave src_strategy and src_rules out
(exit 2)
$ rm hyper/.metadata; reshard info hyper
reshard: error: …/work/hyper: the folder has files of HyperParallel, '_rankN_.safetensors', and no metadata; try: a save that has ended: HyperParallel writes the metadata last
(exit 1)
