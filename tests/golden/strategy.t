# reshard strategy. The compiler's own files (tests/fixtures/strategies) say what conversion and merging must give.
$ reshard example work >/dev/null && cd work && fixtures=$top_srcdir/tests/fixtures/strategies

# show
$ reshard strategy show src_strategy.ckpt --tree src --name 'layer*'
name           stage  shape      devices    map       optimizer_shard  note
layer2.weight      0  [48, 96]   [8]        [-1, -1]                0
layer3.weight      0  [96, 12]   [2, 2, 2]  [1, -1]                 0
layer1.bias        0  [48]       [8]        [-1]                    0
layer3.bias        0  [12]       [8]        [-1]                    0
layer2.bias        0  [96]       [8]        [-1]                    0
layer1.weight      0  [768, 48]  [2, 2, 2]  [-1, 1]                 0

strategy: 12 parameters, 1 stage of 8 devices
$ reshard strategy show $fixtures/layout8.json --name 'w?'
name  stage  shape        devices    map         optimizer_shard  note
w1        0  [2, 32, 32]  [2, 2, 2]  [1, 0, -1]                0
w2        0  [32, 2, 24]  [2, 2, 2]  [-1, 0, 1]                0

strategy: 8 parameters, 1 stage of 8 devices
$ reshard strategy show src_strategy.ckpt --name layer1.wieght
reshard: error: no name is like 'layer1.wieght'; try: --name 'layer1.weight'
(exit 2)
$ reshard strategy show $fixtures/layout8.ckpt --name 'w?'
name  stage  shape  devices    map           optimizer_shard  note
w2        0  ?      [2, 2, 2]  [-1, [0, 1]]                0
w1        0  ?      [2, 2, 2]  [[1, 0], -1]                0

strategy: 8 parameters, 1 stage of 8 devices
$ reshard strategy show $fixtures/manual4.json
name   stage  shape    devices  map      optimizer_shard  note
cross      0  [12, 8]  [4]      [-1, 0]                0
deep       0  ?        [2, 2]   [1, 0]                 0  uneven split
dense      0  [48, 5]  [4]      [0, -1]                0  field slicing
table      0  ?        [4]      [0, -1]                0  uneven split

strategy: 4 parameters, 1 stage of 4 devices
$ reshard strategy show --json $fixtures/pipe8.ckpt --name layer2.bias | sed 's/"path":"[^"]*"/"path":…/'
{"kind":"strategy","path":…,"parameters":18,"stages":2,"devices":4,"rows":[{"name":"layer2.bias","stage":0,"shape":null,"devices":[4],"map":[-1],"optimizer_shard":0,"note":""}]}

# show NAME: its devices, in the axes of the device matrix, in fractions or in elements
$ reshard strategy show src_strategy.ckpt layer3.weight
12 parameters in 4 layouts, 1 stage of 8 devices

1 parameter: devices [2, 2, 2], map [1, -1]
  axis 0 in 2, on 4 ranks each
  layer3.weight
  device axis 2 at 0:
  ┌────────────┬────────────┐
  │ rank 0     │ rank 1     │
  │ [0:1/2, :] │ [0:1/2, :] │
  ├────────────┼────────────┤
  │ rank 2     │ rank 3     │
  │ [1/2:1, :] │ [1/2:1, :] │
  └────────────┴────────────┘
  device axis 2 at 1:
  ┌────────────┬────────────┐
  │ rank 4     │ rank 5     │
  │ [0:1/2, :] │ [0:1/2, :] │
  ├────────────┼────────────┤
  │ rank 6     │ rank 7     │
  │ [1/2:1, :] │ [1/2:1, :] │
  └────────────┴────────────┘
$ reshard strategy show src_strategy.ckpt layer1.weight --shape 768,48
12 parameters in 4 layouts, 1 stage of 8 devices

1 parameter: devices [2, 2, 2], map [-1, 1], tensor [768, 48]
  axis 1 in 2, on 4 ranks each
  layer1.weight
  device axis 2 at 0:
  ┌────────────┬────────────┐
  │ rank 0     │ rank 1     │
  │ [:, 0:24]  │ [:, 0:24]  │
  ├────────────┼────────────┤
  │ rank 2     │ rank 3     │
  │ [:, 24:48] │ [:, 24:48] │
  └────────────┴────────────┘
  device axis 2 at 1:
  ┌────────────┬────────────┐
  │ rank 4     │ rank 5     │
  │ [:, 0:24]  │ [:, 0:24]  │
  ├────────────┼────────────┤
  │ rank 6     │ rank 7     │
  │ [:, 24:48] │ [:, 24:48] │
  └────────────┴────────────┘
$ reshard strategy show src_strategy.ckpt layer1.weight --tree src | sed -n '3,10p'
1 parameter: devices [2, 2, 2], map [-1, 1], tensor [768, 48]
  axis 1 in 2, on 4 ranks each
  layer1.weight
  device axis 2 at 0:
  ┌────────────┬────────────┐
  │ rank 0     │ rank 1     │
  │ [:, 0:24]  │ [:, 0:24]  │
  ├────────────┼────────────┤
$ LC_ALL=C reshard strategy show dst_strategy.ckpt layer1.weight
12 parameters in 4 layouts, 1 stage of 4 devices

1 parameter: devices [4], map [0, -1]
  axis 0 in 4
  layer1.weight
  +--------------+--------------+--------------+--------------+
  | rank 0       | rank 1       | rank 2       | rank 3       |
  | [0:1/4, :]   | [1/4:2/4, :] | [2/4:3/4, :] | [3/4:1, :]   |
  +--------------+--------------+--------------+--------------+
$ COLUMNS=40 reshard strategy show dst_strategy.ckpt layer1.weight
12 parameters in 4 layouts, 1 stage of 4 devices

1 parameter: devices [4], map [0, -1]
  axis 0 in 4
  layer1.weight
  ┌──────────────┬──────────────┐
  │ rank 0       │ rank 1       │
  │ [0:1/4, :]   │ [1/4:2/4, :] │
  ├──────────────┼──────────────┤
  │ rank 2       │ rank 3       │
  │ [2/4:3/4, :] │ [3/4:1, :]   │
  └──────────────┴──────────────┘
$ reshard strategy show dst_strategy.ckpt layer1.weight --json
{"file":"dst_strategy.ckpt","stages":1,"devices":4,"layouts":[
{"stage":0,"device_matrix":[4],"tensor_map":[0, -1],"optimizer_shard":0,"shape":null,"cuts":[4,1],"replicas":1,"fields":1,"parameters":["layer1.weight"],"ranks":[
{"rank":0,"slice":0,"pieces":[0,0]},
{"rank":1,"slice":1,"pieces":[1,0]},
{"rank":2,"slice":2,"pieces":[2,0]},
{"rank":3,"slice":3,"pieces":[3,0]}]}]}
$ reshard strategy show dst_strategy.ckpt layer1.weight --json --shape 768,48 | head -n 4
{"file":"dst_strategy.ckpt","stages":1,"devices":4,"layouts":[
{"stage":0,"device_matrix":[4],"tensor_map":[0, -1],"optimizer_shard":0,"shape":[768, 48],"cuts":[4,1],"replicas":1,"fields":1,"parameters":["layer1.weight"],"ranks":[
{"rank":0,"slice":0,"pieces":[0,0],"boxes":[[[0,192],[0,48]]]},
{"rank":1,"slice":1,"pieces":[1,0],"boxes":[[[192,384],[0,48]]]},
$ reshard strategy show $fixtures/pipe8.ckpt layer1.weight
18 parameters in 4 layouts, 2 stages of 4 devices

stage 0: ranks 0 to 3

1 parameter: devices [2, 2], map [-1, 0]
  axis 1 in 2, on 2 ranks each
  layer1.weight
  ┌────────────┬────────────┐
  │ rank 0     │ rank 1     │
  │ [:, 0:1/2] │ [:, 1/2:1] │
  ├────────────┼────────────┤
  │ rank 2     │ rank 3     │
  │ [:, 0:1/2] │ [:, 1/2:1] │
  └────────────┴────────────┘
$ reshard strategy show $fixtures/manual4.json dense
4 parameters in 4 layouts, 1 stage of 4 devices

1 parameter: devices [4], map [0, -1], tensor [48, 5]
  axis 0 in 24, 6 of them in each slice
  dense
  ┌───────────────────────────────────────────────────────────────────────────┐
  │ rank 0                                                                    │
  │ [0:2, :] + [8:10, :] + [16:18, :] + [24:26, :] + [32:34, :] + [40:42, :]  │
  ├───────────────────────────────────────────────────────────────────────────┤
  │ rank 1                                                                    │
  │ [2:4, :] + [10:12, :] + [18:20, :] + [26:28, :] + [34:36, :] + [42:44, :] │
  ├───────────────────────────────────────────────────────────────────────────┤
  │ rank 2                                                                    │
  │ [4:6, :] + [12:14, :] + [20:22, :] + [28:30, :] + [36:38, :] + [44:46, :] │
  ├───────────────────────────────────────────────────────────────────────────┤
  │ rank 3                                                                    │
  │ [6:8, :] + [14:16, :] + [22:24, :] + [30:32, :] + [38:40, :] + [46:48, :] │
  └───────────────────────────────────────────────────────────────────────────┘
$ reshard strategy show $fixtures/manual4.json table
4 parameters in 4 layouts, 1 stage of 4 devices

1 parameter: devices [4], map [0, -1], tensor [40, 8]
  axis 0 in 4 uneven pieces
  table
  ┌────────────┬────────────┬────────────┬────────────┐
  │ rank 0     │ rank 1     │ rank 2     │ rank 3     │
  │ [0:10, :]  │ [10:34, :] │ [34:36, :] │ [36:40, :] │
  └────────────┴────────────┴────────────┴────────────┘
$ reshard strategy show src_strategy.ckpt nothing
reshard: error: src_strategy.ckpt: parameter 'nothing': the strategy does not have it; try: reshard strategy show without NAME, which lists the names
(exit 1)
$ reshard strategy show src_strategy.ckpt --shape 4
reshard: error: --shape is that of one parameter; try: reshard strategy show FILE NAME
(exit 2)
$ reshard strategy show src_strategy.ckpt layer1.weight --name 'layer*'
reshard: error: --name is for the table of all parameters; try: NAME or --name GLOB
(exit 2)
$ reshard strategy show src_strategy.ckpt layer1.weight --shape 4,x
reshard: error: --shape cannot be '4,x'; try: a tensor's dims, such as --shape 1024,512
(exit 2)
$ reshard strategy show src_strategy.ckpt layer1.weight --shape 768,47
reshard: error: src_strategy.ckpt: parameter 'layer1.weight': its layout does not cut a tensor of this --shape; try: the dims of the whole tensor, each divided by its cuts
(exit 1)
$ reshard strategy show src_strategy.ckpt layer1.weight --shape 768
reshard: error: src_strategy.ckpt: parameter 'layer1.weight': its layout does not cut a tensor of this --shape; try: the dims of the whole tensor, each divided by its cuts
(exit 1)
$ reshard strategy show
reshard: error: show takes a path, and perhaps a name; try: reshard strategy show FILE [NAME]
(exit 2)
$ reshard strategy show a b c
reshard: error: show takes a path, and perhaps a name; try: reshard strategy show FILE [NAME]
(exit 2)

# what went
$ reshard layout src_strategy.ckpt --param layer1.weight
reshard: error: 'layout' is no longer there; try: reshard strategy show FILE NAME
(exit 2)
$ reshard help layout
reshard: error: 'layout' is no longer there; try: reshard strategy show FILE NAME
(exit 2)

# convert: what the compiler writes, but for the shapes, which a tree tells
$ for f in src8 opt8 dst4opt d16 tb8 manual4; do reshard strategy convert $fixtures/$f.ckpt - | cmp - <(sed 's/,"tensor_shape":\[[0-9,]*\]//g' $fixtures/$f.json) && echo $f; done
src8
opt8
dst4opt
d16
tb8
manual4
$ reshard strategy convert $fixtures/src8.ckpt src8.json --tree src; cmp src8.json $fixtures/src8.json
$ reshard strategy convert src8.json back.ckpt && reshard strategy show back.ckpt --name layer1.weight
name           stage  shape  devices    map      optimizer_shard  note
layer1.weight      0  ?      [2, 2, 2]  [-1, 1]                0

strategy: 12 parameters, 1 stage of 8 devices

# A tree of other ranks tells no shapes of a strategy; nor does one whose last rank is missing
$ reshard strategy show dst_strategy.ckpt --tree src
reshard: error: …/work/src: its last rank is rank_7, but the strategy dst_strategy.ckpt ends with rank_3; try: the checkpoint that was saved under the strategy
(exit 1)
$ reshard strategy convert dst_strategy.ckpt dst4.json --tree src
reshard: error: …/work/src: its last rank is rank_7, but the strategy dst_strategy.ckpt ends with rank_3; try: the checkpoint that was saved under the strategy
(exit 1)
$ reshard strategy show src_strategy.ckpt --tree src/rank_0/checkpoint_0.ckpt
reshard: error: …/work/src/rank_0/checkpoint_0.ckpt: its last rank is rank_0, but the strategy src_strategy.ckpt ends with rank_7; try: the checkpoint that was saved under the strategy
(exit 1)
$ reshard strategy new new.json --rules '*: whole' --ranks 4 --tree src
reshard: error: …/work/src: its last rank is rank_7, but the strategy --rules ends with rank_3; try: the checkpoint that was saved under the strategy
(exit 1)

$ reshard strategy convert src8.json src8.json
reshard: error: src8.json: is there already; try: another name, or --force to replace it
(exit 1)
$ reshard strategy convert src8.json src8.json --force
$ reshard strategy convert $fixtures/layout8.ckpt l.json
reshard: error: …/tests/fixtures/strategies/layout8.ckpt: parameter 'moments.b1': several device axes cut one of its axes: JSON then needs the tensor's shape, and protobuf does not have it; try: --tree SRC with the checkpoint, which has it
(exit 1)
$ reshard strategy convert $fixtures/layout8.json l.ckpt
reshard: error: …/tests/fixtures/strategies/layout8.json: parameter 'b1': several device axes may cut one of its axes: protobuf has to say so, and JSON does not; try: --tree SRC with the checkpoint, which has it
(exit 1)
$ reshard strategy convert src8.json x.ckpt --to json
reshard: error: 'x.ckpt' would be read as protobuf; try: a name that ends in .json
(exit 2)
$ sed 's/"field":0/"field":0,"speed":1/' src8.json >fast.json; reshard strategy convert fast.json fast.ckpt
reshard: error: fast.json: parameter 'layer1.bias': this program does not know 'speed', and would lose it; try: the file without it
(exit 1)
$ reshard strategy convert src8.json no/such/x.ckpt
reshard: error: no/such/x.ckpt: cannot create: No such file or directory; try: a folder that is there and that you may write to
(exit 1)
$ reshard strategy convert src8.json
reshard: error: convert takes two paths; try: reshard strategy convert IN OUT
(exit 2)
$ ls
back.ckpt
dst_strategy.ckpt
fast.json
src
src8.json
src_strategy.ckpt

# merge: byte for byte what merge_pipeline_strategys made of the same files in the same order
$ reshard strategy merge pipe8.ckpt $fixtures/pipe8_ckpt/s_1.ckpt $fixtures/pipe8_ckpt/s_0.ckpt && cmp pipe8.ckpt $fixtures/pipe8.ckpt
$ reshard strategy merge - $fixtures/pipe8_json/s_1.json $fixtures/pipe8_json/s_0.json | cmp - $fixtures/pipe8.json
$ reshard strategy merge folder.ckpt $fixtures/pipe8_ckpt && reshard strategy show folder.ckpt | tail -1
strategy: 18 parameters, 2 stages of 4 devices
$ reshard strategy merge one.ckpt $fixtures/pipe8_ckpt/s_1.ckpt
reshard: error: …/tests/fixtures/strategies/pipe8_ckpt/s_1.ckpt: it has a stage 1 but no stage 0; try: the files of all stages, or a strategy merged from them
(exit 1)
$ reshard strategy merge twice.ckpt pipe8.ckpt $fixtures/pipe8_ckpt/s_1.ckpt
reshard: error: pipe8.ckpt: it is a merge of several stages already, and cannot be merged with others; try: that file by itself, or the files that it was merged from
(exit 1)
$ reshard strategy merge mixed.ckpt $fixtures/pipe8_ckpt/s_1.ckpt $fixtures/pipe8_json/s_0.json 2>&1 | sed "s|$fixtures|…|g"
reshard: error: …/pipe8_json/s_0.json: some strategy files of the stages are JSON and some protobuf: this one and …/pipe8_ckpt/s_1.ckpt; try: files of one kind

# new
$ cat >rules <<'EOF'
> axes dp=2 tp=2
> layer1.weight: axis -1 over tp
> layer3.weight: axis 0 over tp, optimizer
> *: whole
> EOF
$ reshard strategy new new.ckpt --rules rules --ranks 4 -s src_strategy.ckpt --tree src
$ reshard strategy show new.ckpt --name 'layer?.weight'
name           stage  shape  devices  map       optimizer_shard  note
layer2.weight      0  ?      [2, 2]   [-1, -1]                0
layer3.weight      0  ?      [2, 2]   [0, -1]                 2
layer1.weight      0  ?      [2, 2]   [-1, 0]                 0

strategy: 12 parameters, 1 stage of 4 devices
$ reshard strategy check new.ckpt src -s src_strategy.ckpt | tail -1
fits: src
$ reshard strategy new - --to json --rules 'like source with dp 8 -> 6' --ranks 6 -s src_strategy.ckpt
reshard: error: --rules: line 1: parameter 'moments.layer3.weight': none of its device axes has 8 devices and cuts no axis of the tensor; try: a rule for this parameter alone
(exit 1)
$ reshard strategy new x.ckpt --rules '*: whole' --ranks 4
reshard: error: there is no list of the parameters; try: --tree SRC, or -s FILE
(exit 2)
$ reshard strategy new x.ckpt --rules '*: whole' -s src_strategy.ckpt
reshard: error: nothing says how many ranks --rules is for; try: --ranks=8, or a line such as "axes dp=2 tp=4"
(exit 2)
$ reshard strategy new x.ckpt --rules 'layer1.*: whole' --ranks 4 -s src_strategy.ckpt
reshard: error: --rules: parameter 'moments.layer3.weight': no rule matches it; try: a last rule "*: whole"
(exit 1)
$ reshard strategy new x.json --rules '*.weight: axis 5 over all;*: whole' --ranks 8 -s src_strategy.ckpt
reshard: error: --rules: parameter 'moments.layer3.weight': the rule cuts axis 5 of a tensor that has 2 axes; try: rules that fit this tensor
(exit 1)

# a strategy of what a Checkpoint 2.0 says of its ranks; nothing else says that
$ reshard export src mf -s src_strategy.ckpt -o view=mindformers,dst_strategy=dst_strategy.ckpt >/dev/null 2>&1
$ reshard strategy new saved.json --tree mf
$ reshard strategy show saved.json
name                   stage  shape        devices  map         optimizer_shard  note
global_step                0  [1]          [4]      [-1]                      0
layer1.bias                0  [48]         [4]      [-1]                      0
layer1.weight              0  [768, 48]    [4]      [0, -1]                   0
layer2.bias                0  [96]         [4]      [-1]                      0
layer2.weight              0  [48, 96]     [4]      [0, -1]                   0
layer3.bias                0  [12]         [4]      [-1]                      0
layer3.weight              0  [2, 48, 12]  [2, 2]   [0, 1, -1]                0
learning_rate              0  ?            [4]      []                        0
moments.layer1.bias        0  [48]         [4]      [-1]                      0
moments.layer1.weight      0  [768, 48]    [4]      [0, -1]                   0
moments.layer2.bias        0  [96]         [4]      [-1]                      0
moments.layer2.weight      0  [48, 96]     [4]      [0, -1]                   0
moments.layer3.bias        0  [12]         [4]      [-1]                      0
moments.layer3.weight      0  [2, 48, 12]  [2, 2]   [0, 1, -1]                0
rng_state                  0  [4]          [4]      [-1]                      0

strategy: 15 parameters, 1 stage of 4 devices
$ reshard export mf saved -d saved.json >/dev/null && reshard verify saved --against mf -d dst_strategy.ckpt
saved: 15 tensors, 334.2 KiB: the same as mf, all 4 ranks agree
$ reshard strategy new x.ckpt --tree src
reshard: error: src: only a Checkpoint 2.0 with metadata.json says which ranks held what; try: --rules with --ranks
(exit 1)
$ reshard export src dcp -s src_strategy.ckpt -o view=dcp,dst_ranks=2 >/dev/null 2>&1
$ reshard strategy new x.ckpt --tree dcp
reshard: error: dcp: only a Checkpoint 2.0 with metadata.json says which ranks held what; try: --rules with --ranks
(exit 1)
$ sed -i 's/"rank_list":\[0,1,/"rank_list":[1,0,/' mf/metadata.json; reshard strategy new x.ckpt --tree mf --force
reshard: error: …/work/mf/metadata.json: offset 503: parameter 'layer1.weight': its rank_list is not the ranks of a pipeline stage, one after the other; try: --rules with --ranks
(exit 1)

# check
$ reshard strategy check src_strategy.ckpt src
note: only in the tree: 'global_step': the strategy does not have it, so it is copied unchanged
note: only in the tree: 'learning_rate': the strategy does not have it, so it is copied unchanged
note: only in the tree: 'rng_state': the strategy does not have it, so it is copied unchanged

strategy: 12 parameters, 1 stage of 8 devices
fits: src
$ reshard strategy check --strict src_strategy.ckpt src | tail -1
does not fit: src: 3 mismatches
$ reshard strategy check dst_strategy.ckpt src
mismatch: ranks: the strategy is of rank_0 to rank_3; the tree has 4 others, rank_7 the last
note: only in the tree: 'global_step': the strategy does not have it, so it is copied unchanged
note: only in the tree: 'learning_rate': the strategy does not have it, so it is copied unchanged
note: only in the tree: 'rng_state': the strategy does not have it, so it is copied unchanged

strategy: 12 parameters, 1 stage of 4 devices
does not fit: src: 1 mismatch
(exit 1)
$ reshard strategy check dst_strategy.ckpt src -s src_strategy.ckpt >/dev/null
$ reshard strategy check $fixtures/d16.ckpt src -s src_strategy.ckpt | tail -1
fits: src
$ reshard example odd --src 3 --dst 5 >/dev/null; reshard strategy check odd/dst_strategy.ckpt src -s src_strategy.ckpt
mismatch: shape: 'moments.layer3.weight': odd/dst_strategy.ckpt: parameter 'moments.layer3.weight': the checkpoint holds a tensor of [96, 12], and the strategy cuts axis 0 into 5 pieces: 96 is not divisible by 5; try: the strategy that this checkpoint was saved under
mismatch: shape: 'moments.layer2.weight': odd/dst_strategy.ckpt: parameter 'moments.layer2.weight': the checkpoint holds a tensor of [48, 96], and the strategy cuts axis 0 into 5 pieces: 48 is not divisible by 5; try: the strategy that this checkpoint was saved under
mismatch: shape: 'moments.layer1.weight': odd/dst_strategy.ckpt: parameter 'moments.layer1.weight': the checkpoint holds a tensor of [768, 48], and the strategy cuts axis 0 into 5 pieces: 768 is not divisible by 5; try: the strategy that this checkpoint was saved under
mismatch: shape: 'layer3.weight': odd/dst_strategy.ckpt: parameter 'layer3.weight': the checkpoint holds a tensor of [96, 12], and the strategy cuts axis 0 into 5 pieces: 96 is not divisible by 5; try: the strategy that this checkpoint was saved under
mismatch: shape: 'layer1.weight': odd/dst_strategy.ckpt: parameter 'layer1.weight': the checkpoint holds a tensor of [768, 48], and the strategy cuts axis 0 into 5 pieces: 768 is not divisible by 5; try: the strategy that this checkpoint was saved under
mismatch: shape: 'layer2.weight': odd/dst_strategy.ckpt: parameter 'layer2.weight': the checkpoint holds a tensor of [48, 96], and the strategy cuts axis 0 into 5 pieces: 48 is not divisible by 5; try: the strategy that this checkpoint was saved under
note: only in the tree: 'global_step': the strategy does not have it, so it is copied unchanged
note: only in the tree: 'learning_rate': the strategy does not have it, so it is copied unchanged
note: only in the tree: 'rng_state': the strategy does not have it, so it is copied unchanged

strategy: 12 parameters, 1 stage of 5 devices
does not fit: src: 6 mismatches
(exit 1)
$ rm -r src/rank_2; cp -f odd/src/rank_1/checkpoint_1.ckpt src/rank_5/checkpoint_5.ckpt; reshard strategy check src_strategy.ckpt src --json
{"kind":"check","strategy":"src_strategy.ckpt","tree":"src","fits":false,"parameters":12,"stages":1,"devices":8,"rows":[{"kind":"ranks","mismatch":true,"parameter":"","stage":null,"rank":2,"text":"rank_2 has no checkpoint"},
{"kind":"shape","mismatch":true,"parameter":"moments.layer3.weight","stage":0,"rank":5,"text":"rank_5 has [35, 12], where the cuts and the slice of rank_0 ask for [48, 12]"},
{"kind":"shape","mismatch":true,"parameter":"layer2.weight","stage":0,"rank":5,"text":"rank_5 has [60, 105], where the cuts and the slice of rank_0 ask for [48, 96]"},
{"kind":"shape","mismatch":true,"parameter":"moments.layer2.bias","stage":0,"rank":5,"text":"rank_5 has [105], where the cuts and the slice of rank_0 ask for [96]"},
{"kind":"shape","mismatch":true,"parameter":"layer3.weight","stage":0,"rank":5,"text":"rank_5 has [35, 12], where the cuts and the slice of rank_0 ask for [48, 12]"},
{"kind":"shape","mismatch":true,"parameter":"layer1.bias","stage":0,"rank":5,"text":"rank_5 has [60], where the cuts and the slice of rank_0 ask for [48]"},
{"kind":"shape","mismatch":true,"parameter":"moments.layer1.weight","stage":0,"rank":5,"text":"rank_5 has [780, 20], where the cuts and the slice of rank_0 ask for [768, 24]"},
{"kind":"shape","mismatch":true,"parameter":"moments.layer2.weight","stage":0,"rank":5,"text":"rank_5 has [60, 105], where the cuts and the slice of rank_0 ask for [48, 96]"},
{"kind":"shape","mismatch":true,"parameter":"layer2.bias","stage":0,"rank":5,"text":"rank_5 has [105], where the cuts and the slice of rank_0 ask for [96]"},
{"kind":"shape","mismatch":true,"parameter":"moments.layer1.bias","stage":0,"rank":5,"text":"rank_5 has [60], where the cuts and the slice of rank_0 ask for [48]"},
{"kind":"shape","mismatch":true,"parameter":"layer1.weight","stage":0,"rank":5,"text":"rank_5 has [780, 20], where the cuts and the slice of rank_0 ask for [768, 24]"},
{"kind":"only in the tree","mismatch":false,"parameter":"global_step","stage":null,"rank":null,"text":"the strategy does not have it, so it is copied unchanged"},
{"kind":"only in the tree","mismatch":false,"parameter":"learning_rate","stage":null,"rank":null,"text":"the strategy does not have it, so it is copied unchanged"},
{"kind":"only in the tree","mismatch":false,"parameter":"rng_state","stage":null,"rank":null,"text":"the strategy does not have it, so it is copied unchanged"}]}
(exit 1)
$ chmod -R u+w src; : >src/rank_3/checkpoint_3.ckpt; reshard strategy check src_strategy.ckpt src | grep empty
note: no parameters: …/work/src/rank_3/checkpoint_3.ckpt: the file is empty; try: copy or save it again; a full disk leaves such files
$ reshardfs --check src -o src_strategy=src_strategy.ckpt,dst_strategy=dst_strategy.ckpt 2>&1 | grep empty
reshardfs: warning: the checkpoint of rank_3 in pipeline stage 0 is empty: remove_redundancy leaves such a file of a rank that keeps nothing, and so does a full disk
$ reshard strategy check src_strategy.ckpt src -s src_strategy.ckpt --whole
reshard: error: -s says how the tree is cut, and --whole that it is not; try: one of them
(exit 2)
$ reshard strategy
reshard: error: strategy takes show, convert, merge, new or check; try: reshard strategy --help
(exit 2)
$ reshard strategy draw src_strategy.ckpt
reshard: error: 'draw' is not a command of strategy; try: reshard strategy --help
(exit 2)

# a strategy whose shapes are right, and which is not that of the files
$ cd .. && reshard example again >/dev/null && reshard export again/src again/opt -s again/src_strategy.ckpt -d $fixtures/opt8.ckpt >/dev/null 2>&1
$ for s in opt8 src8; do reshard strategy check $fixtures/$s.ckpt again/opt | grep -v note; done

strategy: 12 parameters, 1 stage of 8 devices
fits: again/opt
mismatch: bytes: …/again/opt/rank_5/checkpoint_5.ckpt: parameter 'layer1.weight': has other bytes than in rank_0, and is the same slice by …/tests/fixtures/strategies/src8.ckpt; 6 of 12 parameters that were compared contradict it; try: another strategy, or files of one save; reshard verify SRC -s FILE lists all that differ

strategy: 12 parameters, 1 stage of 8 devices
does not fit: again/opt: 1 mismatch
$ reshard strategy check $fixtures/opt8.ckpt again/src | grep -v note
mismatch: bytes: …/again/src/rank_1/checkpoint_1.ckpt: parameter 'layer1.weight': has the same bytes as rank_0, and is another slice by …/tests/fixtures/strategies/opt8.ckpt; 3 of 9 parameters that were compared contradict it; try: another strategy, or files of one save

strategy: 12 parameters, 1 stage of 8 devices
does not fit: again/src: 1 mismatch
$ reshardfs --check again/opt -o drop=rng_state,strict,src_strategy=$fixtures/opt8.ckpt
reshardfs: 8 → 1 rank, 12 parameters; every rank can be read
$ reshardfs --check again/opt -o drop=rng_state,src_strategy=$fixtures/src8.ckpt
reshardfs: error: …/again/opt/rank_5/checkpoint_5.ckpt: parameter 'layer1.weight': has other bytes than in rank_0, and is the same slice by …/tests/fixtures/strategies/src8.ckpt; 6 of 12 parameters that were compared contradict it; try: another strategy; reshard verify SRC -s FILE lists all that differ; or trust_strategy, to go on all the same
(exit 1)
$ reshard export again/opt new -s $fixtures/src8.ckpt; ls new
reshard: error: …/again/opt/rank_5/checkpoint_5.ckpt: parameter 'layer1.weight': has other bytes than in rank_0, and is the same slice by …/tests/fixtures/strategies/src8.ckpt; 6 of 12 parameters that were compared contradict it; try: another strategy; reshard verify SRC -s FILE lists all that differ; or trust_strategy, to go on all the same
ls: cannot access 'new': No such file or directory
(exit 2)
$ reshard export again/opt new -s $fixtures/src8.ckpt -o trust_strategy
reshard: warning: …/again/opt/rank_5/checkpoint_5.ckpt: parameter 'layer1.weight': has other bytes than in rank_0, and is the same slice by …/tests/fixtures/strategies/src8.ckpt; 6 of 12 parameters that were compared contradict it; try: another strategy, or files of one save; reshard verify SRC -s FILE lists all that differ
reshard: warning: 1 parameter in no strategy, copied unsliced: rng_state [4] (rank_2 has other bytes than rank_0)
…/new: 1 file written, 80.5 KiB in …; 0 were there, 0 bytes
$ reshard verify again/opt -s $fixtures/src8.ckpt | tail -1
again/opt: 15 tensors, 80.0 KiB: not right: 6 tensors
