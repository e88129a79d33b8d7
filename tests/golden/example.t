# The tutorial's network, as every user meets it first.
$ reshard example work
work: 8 → 4 ranks, 15 parameters, 1526080 bytes in the source files
$ ls work work/src
work:
dst_strategy.ckpt
src
src_strategy.ckpt

work/src:
rank_0
rank_1
rank_2
rank_3
rank_4
rank_5
rank_6
rank_7
$ reshard example work
reshard: error: work: not empty; try: another DIR, or --force to replace an example
(exit 1)
$ reshard info work/src/rank_0
name                   dtype    shape      bytes  offset
layer1.weight          Float32  [768, 24]  73728      41
layer1.bias            Float32  [48]         192   73802
layer2.weight          Float32  [48, 96]   18432   74034
layer2.bias            Float32  [96]         384   92499
layer3.weight          Float32  [48, 12]    2304   92920
layer3.bias            Float32  [12]          48   95254
global_step            Int32    [1]            4   95330
learning_rate          Float32  []             4   95364
moments.layer1.weight  Float32  [768, 24]  73728   95417
moments.layer1.bias    Float32  [48]         192  169186
moments.layer2.weight  Float32  [48, 96]   18432  169426
moments.layer2.bias    Float32  [96]         384  187899
moments.layer3.weight  Float32  [48, 12]    2304  188328
moments.layer3.bias    Float32  [12]          48  190670
rng_state              Int32    [4]           16  190744

checkpoint: 15 parameters, 190200 bytes of content in a file of 190760
format: ckpt
types: 2 Int32 (20 bytes), 13 Float32 (185.7 KiB)
