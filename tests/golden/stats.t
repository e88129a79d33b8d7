$ reshard example work >/dev/null
$ reshard stats work/src -s work/src_strategy.ckpt
name                   dtype    shape              min         max        mean        std  nan  inf  zeros
layer1.weight          Float32  [768, 48]           -1      0.9999   -0.004487     0.3948    0    0      0
layer1.bias            Float32  [48]           -0.9991      0.9589    -0.08682     0.4797    0    0      0
layer2.weight          Float32  [48, 96]       -0.9994      0.9971    0.007642     0.3954    0    0      0
layer2.bias            Float32  [96]           -0.8285      0.9797     0.04422     0.3773    0    0      0
layer3.weight          Float32  [96, 12]       -0.9982      0.9945    -0.01056     0.3777    0    0      0
layer3.bias            Float32  [12]           -0.7081      0.9833   -0.001032      0.375    0    0      0
moments.layer1.weight  Float32  [768, 48]      -0.9996           1   -0.002325     0.3963    0    0      0
moments.layer1.bias    Float32  [48]           -0.9941      0.8635    -0.06064     0.3855    0    0      0
moments.layer2.weight  Float32  [48, 96]       -0.9996      0.9988    0.005308     0.3948    0    0      0
moments.layer2.bias    Float32  [96]           -0.9942      0.9804    0.006695     0.3452    0    0      0
moments.layer3.weight  Float32  [96, 12]       -0.9977      0.9999    0.003177      0.405    0    0      0
moments.layer3.bias    Float32  [12]           -0.7709      0.2489     -0.1594     0.2975    0    0      0
global_step            Int32    [1]         -680651246  -680651246  -6.807e+08          0    0    0      0
learning_rate          Float32  []            0.008587    0.008587    0.008587          0    0    0      0
rng_state              Int32    [4]        -1936567476  1225280154   3.244e+07  1.185e+09    0    0      0

15 tensors, 85566 numbers: 0 NaN, 0 infinite

# The same of one whole file, and with any number of threads.
$ reshard export work/src whole -s work/src_strategy.ckpt >/dev/null
reshard: warning: 1 parameter in no strategy, copied unsliced: rng_state [4] (rank_2 has other bytes than rank_0)
$ reshard stats whole/rank_0/checkpoint_0.ckpt | cmp - <(reshard stats work/src -s work/src_strategy.ckpt -j 5) && echo equal
equal
$ reshard stats whole --name layer3.bias --name learning_rate --json
{"path":"whole","rows":[{"name":"layer3.bias","dtype":"Float32","shape":[12],"bytes":48,"count":12,"rank_own":false,"min":-0.70811593532562256,"max":0.98325568437576294,"mean":-0.0010318325366824865,"std":0.3750112518499451,"nan":0,"inf":0,"neg_inf":0,"zeros":0},
{"name":"learning_rate","dtype":"Float32","shape":[],"bytes":4,"count":1,"rank_own":false,"min":0.0085872979834675789,"max":0.0085872979834675789,"mean":0.0085872979834675789,"std":0,"nan":0,"inf":0,"neg_inf":0,"zeros":0}]}

# Every kind of number: a file by hand.
$ python3 - <<'PYTHON'
> import json, struct
> parts = {"odd": ("F32", [6], struct.pack("<6f", float("nan"), float("inf"), -float("inf"), 0, -0.0, 2)),
>          "none": ("F16", [0, 4], b""), "nans": ("F16", [2], b"\x00\x7e\x00\xfe"),
>          "flags": ("BOOL", [3], b"\0\1\1"), "long": ("I64", [2], struct.pack("<2q", -2**63, 2**63 - 1)),
>          "ulong": ("U64", [1], struct.pack("<Q", 2**64 - 1)),
>          "fp8": ("F8_E4M3", [4], b"\x38\xb8\x7e\x7f"), "fp8w": ("F8_E5M2", [3], b"\x3c\x7c\x7d")}
> header, data = {}, b""
> for name, (dtype, shape, bytes_) in sorted(parts.items(), key=lambda part: -len(part[1][2])):
>     header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(bytes_)]}
>     data += bytes_
> text = json.dumps(header).encode()
> text += b" " * (-len(text) % 8)
> open("hand.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
> PYTHON
$ reshard stats hand.safetensors
name   dtype         shape                    min                   max       mean        std  nan  inf  zeros
flags  Bool          [3]                        0                     1     0.6667     0.4714    0    0      1
fp8    Float8E4M3FN  [4]                       -1                   448      149.3      211.2    1    0      0
fp8w   Float8E5M2    [3]                        1                     1          1          0    1    1      0
long   Int64         [2]     -9223372036854775808   9223372036854775807          0  9.223e+18    0    0      0
nans   Float16       [2]                        -                     -          -          -    2    0      0
none   Float16       [0, 4]                     -                     -          -          -    0    0      0
odd    Float32       [6]                        0                     2     0.6667     0.9428    1    2      2
ulong  UInt64        [1]     18446744073709551615  18446744073709551615  1.845e+19          0    0    0      0

8 tensors, 21 numbers: 5 NaN, 3 infinite

# A rank's own folder: what it holds.
$ reshard stats work/src/rank_3 --name '*.bias' | cmp - <(reshard stats work/src/rank_3/checkpoint_3.ckpt --name '*.bias') && echo equal
equal

# Errors.
$ reshard stats
reshard: error: stats takes a path; try: reshard stats PATH
(exit 2)
$ reshard stats a b
reshard: error: 'b' is a second path; try: one PATH
(exit 2)
$ reshard stats work/src
reshard: error: …/work/src: has rank_7, but the source without a strategy has 1 rank; try: -s FILE, the strategy that says how they were cut
(exit 1)
$ reshard stats whole -j 0
reshard: error: -j cannot be '0'; try: -j 1 to -j 256
(exit 2)
$ reshard stats whole -o dst_strategy=work/dst_strategy.ckpt
reshard: error: this command reads whole tensors: -o takes no destination; try: -d FILE where there is such an option
(exit 2)
$ reshard stats whole -o step=all
reshard: error: …/whole: no checkpoint in it is named PREFIX-EPOCH_STEP, so step= and epoch= select none; try: file=GLOB to choose by name
(exit 1)
$ reshard stats whole --name 'moment.*'
reshard: error: no name is like 'moment.*'; try: --name 'moments.layer1.weight'
(exit 2)
$ reshard stats nothing
reshard: error: nothing: the source does not exist; try: check the path
(exit 1)
