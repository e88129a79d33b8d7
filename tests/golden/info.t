# What reshard info says of each kind of thing. Sizes and offsets were reckoned with MindSpore's checkpoint.proto; the
# whole shapes are those of the tutorial's network.
$ reshard example work >/dev/null && cd work

# a tree: slices alone, and with its strategy the whole tensors
$ reshard info src
name                   dtype    slice      ranks   bytes
layer1.weight          Float32  [768, 24]  all    589824
layer1.bias            Float32  [48]       all      1536
layer2.weight          Float32  [48, 96]   all    147456
layer2.bias            Float32  [96]       all      3072
layer3.weight          Float32  [48, 12]   all     18432
layer3.bias            Float32  [12]       all       384
global_step            Int32    [1]        all        32
learning_rate          Float32  []         all        32
moments.layer1.weight  Float32  [768, 24]  all    589824
moments.layer1.bias    Float32  [48]       all      1536
moments.layer2.weight  Float32  [48, 96]   all    147456
moments.layer2.bias    Float32  [96]       all      3072
moments.layer3.weight  Float32  [48, 12]   all     18432
moments.layer3.bias    Float32  [12]       all       384
rng_state              Int32    [4]        all       128

rank  file                                    parameters  file bytes
 0-7  checkpoint_0.ckpt to checkpoint_7.ckpt          15      190760

tree: 8 ranks, 1526080 bytes, 190760 each
format: ckpt
types: 2 Int32 (160 bytes), 13 Float32 (1.5 MiB)
$ reshard info src -s src_strategy.ckpt --name '*.weight' --sort size -n 3
name                   dtype    shape      cut                           slice      ranks   bytes
layer1.weight          Float32  [768, 48]  axis 1 in 2, on 4 ranks each  [768, 24]  all    147456
moments.layer1.weight  Float32  [768, 48]  axis 1 in 2, on 4 ranks each  [768, 24]  all    147456
layer2.weight          Float32  [48, 96]   whole on each of 8 devices    [48, 96]   all     18432

rank  file                                    parameters  file bytes
 0-7  checkpoint_0.ckpt to checkpoint_7.ckpt          15      190760

tree: 8 ranks, 1526080 bytes, 190760 each
format: ckpt
strategy: 1 stage of 8 devices
shown: 3 of 15 parameters, 313344 bytes (-n)
types: 2 Int32 (160 bytes), 13 Float32 (334.2 KiB)
note: only in the tree: 'global_step': the strategy does not have it, so it is copied unchanged
note: only in the tree: 'learning_rate': the strategy does not have it, so it is copied unchanged
note: only in the tree: 'rng_state': the strategy does not have it, so it is copied unchanged
$ reshard info src -s dst_strategy.ckpt -n 1
name           dtype    shape       cut          slice      ranks   bytes
layer1.weight  Float32  [3072, 24]  axis 0 in 4  [768, 24]  all    294912

rank  file                                    parameters  file bytes
 0-7  checkpoint_0.ckpt to checkpoint_7.ckpt          15      190760

tree: 8 ranks, 1526080 bytes, 190760 each
format: ckpt
strategy: 1 stage of 4 devices
shown: 1 of 15 parameters, 294912 bytes (-n)
types: 2 Int32 (160 bytes), 13 Float32 (739.2 KiB)
odd: ranks: the strategy is of rank_0 to rank_3; the tree has 4 others, rank_7 the last
note: only in the tree: 'global_step': the strategy does not have it, so it is copied unchanged
note: only in the tree: 'learning_rate': the strategy does not have it, so it is copied unchanged
note: only in the tree: 'rng_state': the strategy does not have it, so it is copied unchanged

# filters
$ reshard info src/rank_3 --name '*bias' --name global_step --dtype int32
name         dtype  shape  bytes  offset
global_step  Int32  [1]        4   95330

checkpoint: 15 parameters, 190200 bytes of content in a file of 190760
shown: 1 of 15 parameters, 4 bytes
format: ckpt
types: 2 Int32 (20 bytes), 13 Float32 (185.7 KiB)
$ reshard info src -s src_strategy.ckpt --name 'layr*'
reshard: error: no name is like 'layr*'; try: --name 'layer1.weight'
(exit 2)
$ reshard info src/rank_3/checkpoint_3.ckpt --name layer1.wight
reshard: error: no name is like 'layer1.wight'; try: --name 'layer1.weight'
(exit 2)
$ reshard info src_strategy.ckpt --name 'global'
reshard: error: no name is like 'global'; try: --name 'layer1.bias'
(exit 2)
$ reshard info src/rank_3/checkpoint_3.ckpt --sort offset -n 2 --name 'm*'
name                   dtype    shape      bytes  offset
moments.layer1.weight  Float32  [768, 24]  73728   95417
moments.layer1.bias    Float32  [48]         192  169186

checkpoint: 15 parameters, 190200 bytes of content in a file of 190760
shown: 2 of 15 parameters, 73920 bytes (-n)
format: ckpt
types: 2 Int32 (20 bytes), 13 Float32 (185.7 KiB)
$ reshard info src --dtype float31
reshard: error: --dtype cannot be 'float31'; try: Float32, BFloat16, Int8 or another
(exit 2)
$ reshard info src --sort weight
reshard: error: --sort cannot be 'weight'; try: size, name, offset or file
(exit 2)
$ reshard info src -n 0
reshard: error: -n cannot be '0'; try: a number of rows
(exit 2)
$ reshard info src -o step
reshard: error: option step needs a value; try: reshardfs --help
(exit 2)
$ reshard info src -o step=7
reshard: error: …/work/src: no checkpoint in it is named PREFIX-EPOCH_STEP, so step= and epoch= select none; try: file=GLOB to choose by name
(exit 1)

# for scripts
$ reshard info --json src/rank_0 -n 1
{"kind":"checkpoint","path":"src/rank_0/checkpoint_0.ckpt","shown":1,"dtypes":[{"dtype":"Int32","parameters":2,"bytes":20},{"dtype":"Float32","parameters":13,"bytes":190180}],"format":"ckpt","parameters":15,"content_bytes":190200,"file_bytes":190760,"checksum":false,"redundancy_removed":false,"other_values":0,"findings":[],"rows":[{"name":"layer1.weight","dtype":"Float32","shape":[768, 24],"bytes":73728,"offset":41}]}
$ reshard info --json src -s src_strategy.ckpt --name layer1.weight | sed 's/"path":"[^"]*"/"path":…/; /"rank":[2-6]/d'
{"kind":"tree","path":…,"ranks":8,"highest_rank":7,"file_bytes":1526080,"least_rank_bytes":190760,"most_rank_bytes":190760,"kinds":1,"sampled":false,"format":"ckpt","encrypted":null,"parameters":15,"stages":1,"devices":8,"shown":1,"dtypes":[{"dtype":"Int32","parameters":2,"bytes":160},{"dtype":"Float32","parameters":13,"bytes":342272}],"aside":[],"findings":[{"kind":"only in the tree","odd":false,"parameter":"global_step","text":"the strategy does not have it, so it is copied unchanged"},
{"kind":"only in the tree","odd":false,"parameter":"learning_rate","text":"the strategy does not have it, so it is copied unchanged"},
{"kind":"only in the tree","odd":false,"parameter":"rng_state","text":"the strategy does not have it, so it is copied unchanged"}],"tensors":[{"name":"layer1.weight","dtype":"Float32","shape":[768, 48],"cut":"axis 1 in 2, on 4 ranks each","slice":[768, 24],"ranks":"all","bytes":147456,"devices":[2, 2, 2],"map":[-1, 1],"optimizer_shard":0,"replicas":4,"stages":[0]}],"rows":[{"rank":0,"file":"checkpoint_0.ckpt","parameters":15,"file_bytes":190760},
{"rank":1,"file":"checkpoint_1.ckpt","parameters":15,"file_bytes":190760},
{"rank":7,"file":"checkpoint_7.ckpt","parameters":15,"file_bytes":190760}]}

# strategies and what is near them
$ reshard info dst_strategy.ckpt --name 'layer*'
name           stage  shape  devices  map       optimizer_shard  note
layer2.bias        0  ?      [4]      [-1]                    0
layer3.bias        0  ?      [4]      [-1]                    0
layer3.weight      0  ?      [2, 2]   [0, -1]                 2
layer1.weight      0  ?      [4]      [0, -1]                 0
layer2.weight      0  ?      [4]      [-1, -1]                4
layer1.bias        0  ?      [4]      [-1]                    0

strategy: 12 parameters, 1 stage of 4 devices
$ reshard info $top_srcdir/tests/fixtures/strategies/pipe8_ckpt --name 'layer*'
name           stage  shape  devices  map       optimizer_shard  note
layer2.weight      0  ?      [4]      [-1, -1]                0
layer2.bias        0  ?      [4]      [-1]                    0
layer1.bias        0  ?      [4]      [-1]                    0
layer1.weight      0  ?      [2, 2]   [-1, 0]                 0
layer3.weight      1  ?      [2, 2]   [0, -1]                 0
layer3.bias        1  ?      [4]      [-1]                    0

strategy: 18 parameters, 2 stages of 4 devices
$ reshard info .
reshard: error: .: holds strategies, not checkpoints, and they are not the stages of one run; try: ./src
(exit 1)
$ printf '# tensor parallel\naxes dp=2 tp=4\n*.weight: axis 0 over tp\n*: whole\n' >rules.txt
$ reshard info rules.txt
line  text
   2  axes dp=2 tp=4
   3  *.weight: axis 0 over tp
   4  *: whole

rules: 3 lines
$ printf 'layer: over\n' >bad.txt; reshard info bad.txt
reshard: error: bad.txt: line 1: 'axis', 'optimizer' or 'whole' must stand here, not 'over'; try: a line such as "*.weight: axis 0 over tp", or "*: whole"
(exit 1)
$ : >empty; reshard info empty
reshard: error: empty: the file is empty; try: copy or save it again; a full disk leaves such files
(exit 1)
$ printf '\x12\x08\x08\x00\x08\x02\x08\x04\x08\x06' >group.pb; reshard info group.pb
rank
   0
   2
   4
   6

group info: 4 ranks with equal checkpoints

# safetensors, one file and a folder with its map
$ reshard export src hf -s src_strategy.ckpt -o view=huggingface --format safetensors >/dev/null
reshard: warning: 9 values of the training beside the weights are left out: 'global_step' and others; only=* shows them
$ reshard info hf/model.safetensors -n 2
name           dtype    shape       bytes  offset
layer1.bias    Float32  [48]          192     496
layer1.weight  Float32  [768, 48]  147456     688

checkpoint: 6 parameters, 171120 bytes of content in a file of 171616
shown: 2 of 6 parameters, 147648 bytes (-n)
format: safetensors
types: 6 Float32 (167.1 KiB)
$ reshard info hf --name '*.bias' -n 2
name         dtype    shape  bytes  offset
layer1.bias  Float32  [48]     192     496
layer2.bias  Float32  [96]     384  148144

checkpoint: 6 parameters, 171120 bytes of content in a file of 171616
shown: 2 of 6 parameters, 576 bytes (-n)
format: safetensors
types: 6 Float32 (167.1 KiB)
export: 1 of 1 files completed, of …/work/src
$ reshard export src pt -s src_strategy.ckpt -d dst_strategy.ckpt --format pt >/dev/null
reshard: warning: 1 parameter in no strategy, copied unsliced: rng_state [4] (rank_2 has other bytes than rank_0)
$ reshard info pt/rank_1/checkpoint_1.pt -n 2
name           dtype    shape      bytes  offset
layer1.weight  Float32  [192, 48]  36864    1536
layer1.bias    Float32  [48]         192   38464

checkpoint: 15 parameters, 86520 bytes of content in a file of 90551
shown: 2 of 15 parameters, 37056 bytes (-n)
format: pt
types: 2 Int32 (20 bytes), 13 Float32 (84.5 KiB)
$ chmod -R u+w pt; truncate -s -1 pt/rank_2/checkpoint_2.pt; reshard info pt -n 1
name           dtype    slice      ranks   bytes
layer1.weight  Float32  [192, 48]  all    110592

rank  file                                parameters  file bytes
 0-1  checkpoint_0.pt to checkpoint_1.pt          15       90551
   2  checkpoint_2.pt                              ?       90550
   3  checkpoint_3.pt                             15       90551

tree: 4 ranks, 362203 bytes, 90550 to 90551 each
format: pt
shown: 1 of 15 parameters, 110592 bytes (-n)
types: 2 Int32 (60 bytes), 13 Float32 (253.4 KiB)
export: 4 of 4 files completed, of …/work/src
odd: unreadable: …/work/pt/rank_2/checkpoint_2.pt: the file has no zip directory: it is truncated, or not written by torch.save; try: compare the file with its original, or save it again
note: export: 1 file of the manifest is not there, or not as long as it says: rank_2/checkpoint_2.pt
reshard: error: …/work/pt/rank_2/checkpoint_2.pt: the file has no zip directory: it is truncated, or not written by torch.save; try: compare the file with its original, or save it again
(exit 1)

# what is missing or odd
$ rm -r src/rank_2; chmod u+w src/rank_*/*; truncate -s 0 src/rank_3/*.ckpt; truncate -s 100000 src/rank_5/*.ckpt
$ cp src/rank_0/checkpoint_0.ckpt src/rank_0/checkpoint_9.ckpt; touch src/rank_0/checkpoint_9.ckpt.tmp
$ reshard info src -n 1
reshard: error: …/work/src: the ranks' last checkpoints are of different saves: rank_0/checkpoint_9.ckpt and rank_1/checkpoint_1.ckpt; try: file=GLOB that matches one file of each rank, or files=MAP
(exit 1)
$ mv src/rank_0/checkpoint_9.ckpt src/rank_0/a_0.ckpt
$ reshard info src -n 1
name           dtype    slice      ranks   bytes
layer1.weight  Float32  [768, 24]  all    368640

rank  file                                    parameters  file bytes
 0-1  checkpoint_0.ckpt to checkpoint_1.ckpt          15      190760
   3  checkpoint_3.ckpt                                0           0
   4  checkpoint_4.ckpt                               15      190760
   5  checkpoint_5.ckpt                                ?      100000
 6-7  checkpoint_6.ckpt to checkpoint_7.ckpt          15      190760

tree: 7 ranks, 1 missing below the highest, 1053800 bytes, 0 to 190760 each
format: ckpt
shown: 1 of 15 parameters, 368640 bytes (-n)
types: 2 Int32 (100 bytes), 13 Float32 (928.6 KiB)
odd: ranks: rank_2 has no checkpoint
note: no parameters: …/work/src/rank_3/checkpoint_3.ckpt: the file is empty; try: copy or save it again; a full disk leaves such files
odd: unreadable: …/work/src/rank_5/checkpoint_5.ckpt: offset 95417: parameter 'moments.layer1.weight': the file is truncated in a tensor: it ends after 4583 of its 73728 bytes; try: compare the file with its original, or save it again
note: several checkpoints: up to 2 in a folder (1 folder, rank_0 the first): the last by name counts
note: empty file: rank_3/checkpoint_3.ckpt has 0 bytes (1 folder)
note: temporary file: rank_0/checkpoint_9.ckpt.tmp is left over, or being written (1 folder)
reshard: error: …/work/src/rank_5/checkpoint_5.ckpt: offset 95417: parameter 'moments.layer1.weight': the file is truncated in a tensor: it ends after 4583 of its 73728 bytes; try: compare the file with its original, or save it again
(exit 1)
$ reshard info src -s src_strategy.ckpt -n 1 2>/dev/null | grep 'rank_[235]'
odd: ranks: rank_2 has no checkpoint
note: no parameters: …/work/src/rank_3/checkpoint_3.ckpt: the file is empty; try: copy or save it again; a full disk leaves such files
odd: unreadable: …/work/src/rank_5/checkpoint_5.ckpt: offset 95417: parameter 'moments.layer1.weight': the file is truncated in a tensor: it ends after 4583 of its 73728 bytes; try: compare the file with its original, or save it again
note: empty file: rank_3/checkpoint_3.ckpt has 0 bytes (1 folder)
$ reshard info src/rank_5
reshard: error: src/rank_5/checkpoint_5.ckpt: offset 95417: parameter 'moments.layer1.weight': the file is truncated in a tensor: it ends after 4583 of its 73728 bytes; try: compare the file with its original, or save it again
(exit 1)
$ reshard info src/rank_2
reshard: error: src/rank_2: cannot open: No such file or directory; try: a checkpoint, a folder of one, or a strategy
(exit 1)
$ reshard info /dev/null
reshard: error: /dev/null: neither a file nor a folder; try: a checkpoint, a folder of one, or a strategy
(exit 1)

# what was mistaken for something else is named
$ reshard example other >/dev/null; echo 'Some notes.' >notes; reshard info notes
reshard: error: notes: is a text without rules; try: a checkpoint, a folder of one, or a strategy
(exit 1)
$ reshard info other/src/rank_0/checkpoint_0.ckpt -s other/src_strategy.ckpt
reshard: error: option src_strategy says how the ranks of a folder are cut, and 'other/src/rank_0/checkpoint_0.ckpt' is none; try: the folder of all ranks as PATH, or leave it out
(exit 2)
$ reshard info other/src -s other/src/rank_0/checkpoint_0.ckpt
reshard: error: other/src/rank_0/checkpoint_0.ckpt: is a checkpoint (ckpt), not a strategy; try: the file that MindSpore saved as strategy, or rules
(exit 1)

# files of ranks in one folder: options say which of them is read
$ mkdir flat; for r in 0 1 2 3 4 5 6 7; do mv other/src/rank_$r/checkpoint_$r.ckpt flat/net_rank_$r-1_10.ckpt; done
$ reshard info flat
reshard: error: flat: by their names, 'net_rank_0-1_10.ckpt' and 'net_rank_7-1_10.ckpt' are of two ranks, and only one of them can count here; try: files=MAP, which names the file of each rank; or file=GLOB that only one of them matches
(exit 1)
$ reshard info flat -o file='*rank_2*' --name layer1.bias
name         dtype    slice  ranks  bytes
layer1.bias  Float32  [48]   all      192

rank  file                  parameters  file bytes
   0  net_rank_2-1_10.ckpt          15      190760

tree: 1 rank, 190760 bytes
format: ckpt
shown: 1 of 15 parameters, 192 bytes
types: 2 Int32 (20 bytes), 13 Float32 (185.7 KiB)
$ echo '{"0": "net_rank_0-1_10.ckpt", "1": "net_rank_1-1_10.ckpt"}' >flat/map.json
$ reshard info flat -o files=flat/map.json --name layer1.bias
name         dtype    slice  ranks  bytes
layer1.bias  Float32  [48]   all      384

rank  file                                          parameters  file bytes
 0-1  net_rank_0-1_10.ckpt to net_rank_1-1_10.ckpt          15      190760

tree: 2 ranks, 381520 bytes, 190760 each
format: ckpt
shown: 1 of 15 parameters, 384 bytes
types: 2 Int32 (40 bytes), 13 Float32 (371.4 KiB)
$ for r in 0 1 2 3 4 5 6 7; do mv flat/net_rank_$r-1_10.ckpt other/src/rank_$r/checkpoint_$r.ckpt; done
$ reshard export other/src/rank_0/checkpoint_0.ckpt one -s other/src_strategy.ckpt
reshard: error: …/other/src/rank_0/checkpoint_0.ckpt: parameter 'moments.layer3.weight': rank_2 has no checkpoint, and no other rank that has one holds the same slice; try: the folder of all ranks as the source
(exit 1)
$ reshard export other/src/rank_0/checkpoint_0.ckpt one -o convert=qwen9
reshard: error: there are no conversion rules 'qwen9'; try: convert=…
(exit 2)
$ reshard get other/src layer1.bias gs://bucket/bias.npy -s other/src_strategy.ckpt
reshard: error: gs://bucket/bias.npy: cannot create: No such file or directory; try: a path; only reshard export writes to s3://
(exit 1)
