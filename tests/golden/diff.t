# The same checkpoint in 8 and in 4 ranks.
$ reshard example work >/dev/null; reshard export work/src of4 -s work/src_strategy.ckpt -d work/dst_strategy.ckpt >/dev/null
reshard: warning: 1 parameter in no strategy, copied unsliced: rng_state [4] (rank_2 has other bytes than rank_0)
$ reshard diff work/src of4 -s work/src_strategy.ckpt -d work/dst_strategy.ckpt
15 tensors are the same

# In another element type, as one safetensors file.
$ reshard export work/src bf16 -s work/src_strategy.ckpt --format safetensors -o dtype=bfloat16 >/dev/null
reshard: warning: 1 parameter in no strategy, copied unsliced: rng_state [4] (rank_2 has other bytes than rank_0)
$ reshard diff of4 bf16 -s work/dst_strategy.ckpt --name 'layer*'
   name           dtype               shape      differ  max abs  max rel  NaN  inf       cosine
!  layer1.weight  Float32 → BFloat16  [768, 48]   36864  0.00195   0.0039    0    0  0.999998913
!  layer1.bias    Float32 → BFloat16  [48]           48  0.00194  0.00354    0    0  0.999998618
!  layer2.weight  Float32 → BFloat16  [48, 96]     4608  0.00195  0.00385    0    0  0.999998945
!  layer2.bias    Float32 → BFloat16  [96]           96  0.00193  0.00336    0    0  0.999998822
!  layer3.weight  Float32 → BFloat16  [96, 12]     1152  0.00195  0.00377    0    0  0.999998916
!  layer3.bias    Float32 → BFloat16  [12]           12  0.00112  0.00199    0    0   0.99999918

the same: 0, different: 6, only in of4: 0, only in bf16: 0
(exit 1)
$ reshard diff of4 bf16 -s work/dst_strategy.ckpt --any-dtype --rtol 0.004
15 tensors are the same
$ reshard diff of4 bf16 -s work/dst_strategy.ckpt --any-dtype --rtol 0.0039 --name 'layer*.bias' --all
   name         dtype               shape  differ  max abs  max rel  NaN  inf       cosine
=  layer1.bias  Float32 → BFloat16  [48]       48  0.00194  0.00354    0    0  0.999998618
=  layer2.bias  Float32 → BFloat16  [96]       96  0.00193  0.00336    0    0  0.999998822
=  layer3.bias  Float32 → BFloat16  [12]       12  0.00112  0.00199    0    0   0.99999918

3 tensors are the same
$ reshard diff of4 bf16 -s work/dst_strategy.ckpt --headers --name 'layer3.*'
   name           dtype               shape     differ  max abs  max rel  NaN  inf  cosine
!  layer3.weight  Float32 → BFloat16  [96, 12]
!  layer3.bias    Float32 → BFloat16  [12]

the same: 0, different: 2, only in of4: 0, only in bf16: 0
(exit 1)
$ reshard diff of4 bf16 -s work/dst_strategy.ckpt --names-only
15 tensors are the same

# Other names, other shapes.
$ echo '{"layer2.bias": null, "layer1.bias": "first.bias"}' >names.json
$ reshard diff of4 of4 -s work/dst_strategy.ckpt -d work/dst_strategy.ckpt --options-b names=names.json
   name         dtype    shape  differ  max abs  max rel  NaN  inf  cosine
-  layer1.bias  Float32  [48]
-  layer2.bias  Float32  [96]
+  first.bias   Float32  [48]

the same: 13, different: 0, only in of4: 2, only in of4: 1
(exit 1)
$ reshard diff of4/rank_0/checkpoint_0.ckpt work/src/rank_0/checkpoint_0.ckpt --name '*.weight' --name 'rng*'
   name                   dtype    shape                  differ  max abs  max rel  NaN  inf  cosine
!  layer1.weight          Float32  [192, 48] → [768, 24]
!  layer2.weight          Float32  [12, 96] → [48, 96]
!  layer3.weight          Float32  [24, 12] → [48, 12]
!  moments.layer1.weight  Float32  [192, 48] → [768, 24]
!  moments.layer2.weight  Float32  [12, 96] → [48, 96]
!  moments.layer3.weight  Float32  [24, 12] → [48, 12]

the same: 1, different: 6, only in of4/rank_0/checkpoint_0.ckpt: 0, only in work/src/rank_0/checkpoint_0.ckpt: 0
(exit 1)
$ reshard diff of4 bf16 -s work/dst_strategy.ckpt --json --name layer3.bias --name 'first*' --name global_step
{"a":"of4","b":"bf16","same":false,"models_only":false,"rows":[{"name":"layer3.bias","state":"different","dtype_a":"Float32","dtype_b":"BFloat16","shape_a":[12],"shape_b":[12],"bytes_equal":false,"count":12,"equal":0,"beyond":12,"max_abs":0.0011193156242370605,"max_rel":0.0019900153664981616,"nan_a":0,"nan_b":0,"inf_a":0,"inf_b":0,"cosine":0.99999917961091522},
{"name":"global_step","state":"same","dtype_a":"Int32","dtype_b":"Int32","shape_a":[1],"shape_b":[1],"bytes_equal":true,"count":1,"equal":1,"beyond":0,"max_abs":0,"max_rel":0,"nan_a":0,"nan_b":0,"inf_a":0,"inf_b":0,"cosine":1}]}
(exit 1)

# What is infinite on one side alone is infinitely far away, and what overflows in float16 is; zeros of both signs are equal.
$ save() { python3 -c "import struct, sys; v = [float(x) for x in sys.argv[2:]]; h = b'{\"w\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[0,%d]}}' % (len(v), 4 * len(v)); open(sys.argv[1], 'wb').write(struct.pack('<Q', len(h)) + h + struct.pack('<%df' % len(v), *v))" "$@"; }
$ save a.safetensors 1 2 1e30 -inf nan 0; save b.safetensors 1 2 inf -inf nan -0.0
$ reshard diff a.safetensors b.safetensors --rtol 1 --atol 1e38
   name  dtype    shape  differ  max abs  max rel  NaN    inf  cosine
!  w     Float32  [6]         1      inf      inf    1  1 → 2       -

the same: 0, different: 1, only in a.safetensors: 0, only in b.safetensors: 0
(exit 1)
$ reshard diff b.safetensors a.safetensors --json
{"a":"b.safetensors","b":"a.safetensors","same":false,"models_only":false,"rows":[{"name":"w","state":"different","dtype_a":"Float32","dtype_b":"Float32","shape_a":[6],"shape_b":[6],"bytes_equal":false,"count":6,"equal":5,"beyond":1,"max_abs":null,"max_rel":null,"nan_a":1,"nan_b":1,"inf_a":2,"inf_b":1,"cosine":null}]}
(exit 1)
$ reshard export a.safetensors half -o view=huggingface,dtype=float16 2>/dev/null >/dev/null; reshard diff a.safetensors half --any-dtype --rtol 1
   name  dtype              shape  differ  max abs  max rel  NaN    inf  cosine
!  w     Float32 → Float16  [6]         1      inf      inf    1  1 → 2       -

the same: 0, different: 1, only in a.safetensors: 0, only in half: 0
(exit 1)
$ save b.safetensors 1 2 1e30 -inf nan -0.0; reshard diff a.safetensors b.safetensors --all
   name  dtype    shape  differ  max abs  max rel  NaN  inf  cosine
=  w     Float32  [6]         0        0        0    1    1       1

1 tensor is the same

# Ranks by their folders.
$ reshard diff of4/rank_0 of4/rank_2 --name '*.bias' --name global_step
7 tensors are the same

# Trouble is 2, as diff(1) has it.
$ reshard diff of4
reshard: error: diff takes two paths; try: reshard diff A B
(exit 2)
$ reshard diff a b c
reshard: error: 'c' is a third path; try: reshard diff A B
(exit 2)
$ reshard diff of4 bf16 --rtol -1
reshard: error: --rtol cannot be '-1'; try: a number from 0 on, such as 1e-5
(exit 2)
$ reshard diff of4 bf16
reshard: error: …/of4: has rank_3, but the source without a strategy has 1 rank; try: -s FILE, the strategy that says how they were cut
(exit 2)
$ reshard diff bf16 bf16 -o dst_strategy=work/dst_strategy.ckpt
reshard: error: this command reads whole tensors: -o takes no destination; try: -d FILE where there is such an option
(exit 2)
$ reshard diff of4 bf16 -s work/dst_strategy.ckpt --name layer2.bia
reshard: error: no name is like 'layer2.bia'; try: --name 'layer2.bias'
(exit 2)
$ reshard diff bf16 nothing
reshard: error: nothing: the source does not exist; try: check the path
(exit 2)
