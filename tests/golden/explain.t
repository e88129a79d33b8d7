# Which source ranks, files and bytes make a slice. 8 ranks of the tutorial's network, wanted on 4.
$ reshard example work >/dev/null; cd work
$ explain() { reshard explain src -s src_strategy.ckpt -d dst_strategy.ckpt "$@"; }
$ explain --param layer1.weight --rank 3
layer1.weight: Float32 [768, 48], 144.0 KiB
source       devices [2, 2, 2], map [-1, 1]: axis 1 in 2, on 4 ranks each; slices of [768, 24]
destination  devices [4], map [0, -1]: axis 0 in 4; slices of [192, 48]
rank_3       [576:768, :]: Float32 [192, 48], 36864 bytes from offset 41 of rank_3/checkpoint_3.ckpt

from rank  of the tensor     of its slice  to          offset    run  times  every  bytes
        1  [576:768, 0:24]   [576:768, :]  [:, 0:24]    55337  18432      1         18432
        3  [576:768, 24:48]  [576:768, :]  [:, 24:48]   55337  18432      1         18432

rank 1  rank_1/checkpoint_1.ckpt; the same is on ranks 0,4-5
rank 3  rank_3/checkpoint_3.ckpt; the same is on ranks 2,6-7

2 pieces from 2 source ranks, 36864 bytes
$ explain --param layer2.weight --rank 1
layer2.weight: Float32 [48, 96], 18.0 KiB
source       devices [8], map [-1, -1]: whole on each of 8 devices; slices of [48, 96]
destination  devices [4], map [-1, -1], optimizer shard 4: axis 0 in 4; slices of [12, 96]
rank_1       [12:24, :]: Float32 [12, 96], 4608 bytes from offset 37167 of rank_1/checkpoint_1.ckpt

from rank  of the tensor  of its slice  to      offset   run  times  every  bytes
        1  [12:24, :]     [12:24, :]    [:, :]   78642  4608      1          4608

rank 1  rank_1/checkpoint_1.ckpt; the same is on ranks 0,2-7

1 piece from 1 source rank, 4608 bytes
$ explain --param layer3.weight
layer3.weight: Float32 [96, 12], 4.5 KiB
source       devices [2, 2, 2], map [1, -1]: axis 0 in 2, on 4 ranks each; slices of [48, 12]
destination  devices [2, 2], map [0, -1], optimizer shard 2: axis 0 in 4; slices of [24, 12]

rank  slice       shape     bytes  from ranks  source bytes
   0  [0:24, :]   [24, 12]   1152  0                   1152
   1  [48:72, :]  [24, 12]   1152  3                   1152
   2  [24:48, :]  [24, 12]   1152  0                   1152
   3  [72:96, :]  [24, 12]   1152  3                   1152

4 ranks of the destination together: 4608 bytes (4.5 KiB) from 2 source ranks, each byte counted once
$ explain --param rng_state --rank 2
rng_state: Int32 [4], 16 bytes
source       in neither strategy: copied as it is
destination  in neither strategy: copied as it is
rank_2       Int32 [4], 16 bytes from offset 87058 of rank_2/checkpoint_2.ckpt

from rank  of the tensor  of its slice  to   offset  run  times  every  bytes
        2  [:]            [:]           [:]  190744   16      1            16

rank 2  rank_2/checkpoint_2.ckpt

1 piece from 1 source rank, 16 bytes
$ explain --rank 1
rank  parameters  bytes  files  from ranks  source bytes
   1          15  86520      2  1,3                86520

from rank  file                      bytes
        1  rank_1/checkpoint_1.ckpt  47352
        3  rank_3/checkpoint_3.ckpt  39168

1 rank of the destination together: 86520 bytes (84.5 KiB) from 2 source ranks, each byte counted once
$ explain
rank  parameters  bytes  files  from ranks  source bytes
   0          15  86520      2  0,2                86520
   1          15  86520      2  1,3                86520
   2          15  86520      2  0,2                86520
   3          15  86520      2  1,3                86520

4 ranks of the destination together: 346080 bytes (338.0 KiB) from 4 source ranks, each byte counted once
$ explain --ranks 0-1,3
rank  parameters  bytes  files  from ranks  source bytes
   0          15  86520      2  0,2                86520
   1          15  86520      2  1,3                86520
   3          15  86520      2  1,3                86520

from rank  file                      bytes
        0  rank_0/checkpoint_0.ckpt  49656
        1  rank_1/checkpoint_1.ckpt  84216
        2  rank_2/checkpoint_2.ckpt  36864
        3  rank_3/checkpoint_3.ckpt  88824

3 ranks of the destination together: 259560 bytes (253.5 KiB) from 4 source ranks, each byte counted once
$ explain --param layer3.weight --rank 2 --json
{"source":"…/work/src","parameter":"layer3.weight","shown_as":"layer3.weight","dtype":"Float32","shown_dtype":"Float32","shape":[96, 12],"copied":false,"source_layout":{"device_matrix":[2, 2, 2],"tensor_map":[1, -1],"optimizer_shard":0,"cuts":[2,1],"replicas":4},"destination_layout":{"device_matrix":[2, 2],"tensor_map":[0, -1],"optimizer_shard":2,"cuts":[4,1],"replicas":1},"slices":[
{"rank":2,"shape":[24, 12],"bytes":1152,"file":"rank_2/checkpoint_2.ckpt","offset":42229,"boxes":[[[24,48],[0,12]]],"pieces":[
{"rank":0,"instead_of":null,"file":"rank_0/checkpoint_0.ckpt","box":[[24,48],[0,12]],"source_box":[[24,48],[0,12]],"destination_box":[[0,24],[0,12]],"bytes":1152,"ranges":[{"offset":94072,"run":1152,"loops":[]}],"same":[1,4,5],"left_out":[],"lost":[]}]}],
"together":{"bytes":1152,"sources":[{"rank":0,"file":"rank_0/checkpoint_0.ckpt","bytes":1152}]}}
$ explain --ranks 0 --json
{"source":"…/work/src","ranks":[
{"rank":0,"parameters":15,"bytes":86520,"files":2,"source_bytes":86520,"sources":[{"rank":0,"file":"rank_0/checkpoint_0.ckpt","bytes":49656},{"rank":2,"file":"rank_2/checkpoint_2.ckpt","bytes":36864}]}],
"together":{"bytes":86520,"sources":[{"rank":0,"file":"rank_0/checkpoint_0.ckpt","bytes":49656},{"rank":2,"file":"rank_2/checkpoint_2.ckpt","bytes":36864}]}}
$ explain --param layer3.bias --rank 0 -o dtype=bfloat16 --format safetensors
layer3.bias: Float32 [12], 48 bytes
converted to BFloat16
source       devices [8], map [-1]: whole on each of 8 devices; slices of [12]
destination  devices [4], map [-1]: whole on each of 4 devices; slices of [12]
rank_0       [:]: BFloat16 [12], 24 bytes from offset 22236 of rank_0/checkpoint_0.safetensors

from rank  of the tensor  of its slice  to   offset  run  times  every  bytes
        0  [:]            [:]           [:]   95254   48      1            48

rank 0  rank_0/checkpoint_0.ckpt; the same is on ranks 1-7

1 piece from 1 source rank, 48 bytes
$ mv src/rank_1 lost
$ explain --param layer1.weight --rank 3 2>&1
reshard: warning: rank_1 is missing; its slices are read from a replica, rank_0
layer1.weight: Float32 [768, 48], 144.0 KiB
source       devices [2, 2, 2], map [-1, 1]: axis 1 in 2, on 4 ranks each; slices of [768, 24]
destination  devices [4], map [0, -1]: axis 0 in 4; slices of [192, 48]
rank_3       [576:768, :]: Float32 [192, 48], 36864 bytes from offset 41 of rank_3/checkpoint_3.ckpt

from rank  of the tensor     of its slice  to          offset    run  times  every  bytes
        0  [576:768, 0:24]   [576:768, :]  [:, 0:24]    55337  18432      1         18432
        3  [576:768, 24:48]  [576:768, :]  [:, 24:48]   55337  18432      1         18432

rank 0  rank_0/checkpoint_0.ckpt; the same is on ranks 4-5; rank 1 has no file; instead of rank 1
rank 3  rank_3/checkpoint_3.ckpt; the same is on ranks 2,6-7

2 pieces from 2 source ranks, 36864 bytes
$ explain --param layer1.weight --rank 3 --json 2>/dev/null | grep -o '"instead_of":[^n,]*\|"lost":.[^]]*'
"instead_of":1
"lost":[1
"instead_of":
"lost":[
$ mv src/rank_0 src/rank_4 src/rank_5 lost
$ explain --param layer1.weight --rank 3
reshard: error: …/work/src: parameter 'moments.layer3.weight': rank_0 has no checkpoint, and no other rank that has one holds the same slice; try: the checkpoint of that rank
(exit 1)
$ mv lost/rank_* src; mv lost src/rank_1

# What does not fit.
$ explain --param nothing
reshard: error: …/work/src: parameter 'nothing': no destination rank has it; try: reshard info, which lists the names
(exit 1)
$ explain --param layer1.weigth
reshard: error: …/work/src: parameter 'layer1.weigth': no destination rank has it; try: --param 'layer1.weight'
(exit 1)
$ explain --param nothing --rank 1
reshard: error: …/work/src: parameter 'nothing': rank_1 of the destination does not have it; try: reshard info, which lists the names
(exit 1)
$ explain --param layer1.weight --rank 4
reshard: error: there is no rank 4 of 4; try: ranks 0 to 3
(exit 2)
$ explain --param layer1.weight --rank x
reshard: error: --rank cannot be 'x'; try: a rank of the destination, from 0 up
(exit 2)
$ explain --svg a.svg
reshard: error: --svg draws one parameter; try: --param NAME
(exit 2)
$ explain --param layer1.weight --svg no/such/folder.svg
reshard: error: no/such/folder.svg: cannot write the picture: No such file or directory; try: another FILE for --svg
(exit 1)
$ reshard explain
reshard: error: explain takes a source; try: reshard explain SRC -s FILE -d FILE --param NAME
(exit 2)
$ reshard explain src
reshard: error: neither src_strategy nor dst_strategy is given, so there is nothing to reshard; try: -o src_strategy=FILE,dst_strategy=FILE; reshard suggest SRC says what else there is
(exit 2)
$ explain other
reshard: error: 'other' is a second path; try: one SRC
(exit 2)
$ explain --param layer1.weight --rank 3 --svg a.svg >/dev/null; explain --param layer1.weight --rank 3 --svg - | cmp - a.svg

# Any cut is drawn from its pieces; a value that each rank has for itself is one for each.
$ explain --param layer1.weight --svg - | grep -o '[^<>]*</text'
layer1.weight</text
Float32 [768, 48], from 8 ranks to 4</text
source: axis 1 in 2, on 4 ranks each</text
destination: axis 0 in 4</text
[0:192, :], 18.0 KiB</text
[0:192, 0:24]</text
[0:192, :], 18.0 KiB</text
[0:192, 24:48]</text
[192:384, :], 18.0 KiB</text
[192:384, 0:24]</text
[192:384, :], 18.0 KiB</text
[192:384, 24:48]</text
[384:576, :], 18.0 KiB</text
[384:576, 0:24]</text
[384:576, :], 18.0 KiB</text
[384:576, 24:48]</text
[576:768, :], 18.0 KiB</text
[576:768, 0:24]</text
[576:768, :], 18.0 KiB</text
[576:768, 24:48]</text
rank 0 ×4</text
rank 2 ×4</text
rank 1 ×4</text
rank 3 ×4</text
rank 0 [0:192, :]</text
rank 1 [192:384, :]</text
rank 2 [384:576, :]</text
rank 3 [576:768, :]</text
Each colour is what one source rank gives, and on the right where its bytes go: 8 pieces, 144.0 KiB, each slice once.</text
Left are the ranks that are read, and places in their tensors; right are places in the whole tensor; ×N tells that N ranks hold the same.</text
$ explain --param rng_state --ranks 1-2 --svg - | grep -o '[^<>]*</text'
rng_state</text
Int32 [4], from 8 ranks to 4</text
source and destination: in neither strategy: copied as it is</text
[:], 16 bytes</text
[:]</text
[:], 16 bytes</text
[:]</text
rank 1</text
rank 2</text
rank 1 [:]</text
rank 2 [:]</text
Each colour is what one source rank gives, and on the right where its bytes go: 2 pieces, 32 bytes, each slice once.</text
Left are the ranks that are read, and places in their tensors; right are places in the whole tensor.</text

# The picture of doc/images is what the tool draws.
$ reshard example e --src 8 --dst 6 --cut rows --layers 1 --hidden 1024 --size 1M >/dev/null
$ explain6() { reshard explain e/src -s e/src_strategy.ckpt -d e/dst_strategy.ckpt --param layers.0.weight --svg - "$@"; }
$ explain6 | cmp - $top_srcdir/doc/images/explain.svg
