# Values that rules compute: norms that are 1 more, and a vocabulary that is padded with zeros.
$ python3 - <<'END'
> import json, os, struct
> def bf16(*values):
>     return b"".join(struct.pack("<f", v)[2:] for v in values)
> tensors = {"b.norm": ("BF16", [4], bf16(0.5, -0.25, 0.00390625, 0.01171875)),
>            "b.table": ("F32", [3, 2], struct.pack("<6f", 1, 2, 3, 4, 5, 6))}
> head, at = {}, 0
> for name, (dtype, shape, data) in tensors.items():
>     head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
>     at += len(data)
> text = json.dumps(head).encode()
> os.mkdir("hf")
> with open("hf/model.safetensors", "wb") as file:
>     file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))
> END
$ echo '{"n": 3}' > hf/config.json
$ cat > own.rules <<'END'
> sides training huggingface
> option multiple = 4
> norm = plus(1, b.norm [4])
> table = pad(0, config.n + (multiple - config.n % multiple) % multiple, b.table [config.n, 2])
> END
$ reshard convert check own.rules hf --list
tensor  shape   dtype     sources  rule
norm    [4]     BFloat16        1  own.rules: line 3
table   [4, 2]  Float32         1  own.rules: line 4
hf: 2 tensors of huggingface make 2 of training; 0 more are left out
$ reshard get hf norm norm.npy -o convert=own.rules; tail -c 8 norm.npy | od -An -tx2
 3fc0 3f40 3f80 3f82
$ reshard get hf table - -o convert=own.rules | tail -c 32 | od -An -tf4 -w8
               1               2
               3               4
               5               6
               0               0
$ reshard stats hf -o convert=own.rules
name   dtype     shape    min  max   mean     std  nan  inf  zeros
norm   BFloat16  [4]     0.75  1.5  1.066  0.2716    0    0      0
table  Float32   [4, 2]     0    6  2.625   2.118    0    0      2

2 tensors, 12 numbers: 0 NaN, 0 infinite
$ reshard explain hf -o convert=own.rules --param norm
rank_0: norm [4] BFloat16: [:]
  made by own.rules: line 3; places are in whole tensors
    [:] is b.norm [:] + 1 in model.safetensors, 8 bytes
$ reshard explain hf -o convert=own.rules --param table
rank_0: table [4, 2] Float32: [:, :]
  made by own.rules: line 4; places are in whole tensors
    [0:3, :] is b.table [:, :] in model.safetensors, 24 bytes
    [3:4, :] is zeros
$ reshard explain hf -o convert=own.rules --param norm --format ckpt --json
{"source":"…/hf","parameter":"norm","shown_as":"norm","dtype":"BFloat16","shown_dtype":"BFloat16","shape":[4],"copied":false,"rule":{"file":"own.rules","line":3},"source_layout":null,"destination_layout":null,"slices":[
{"rank":0,"shape":[4],"bytes":8,"file":"rank_0/checkpoint_0.ckpt","offset":24,"boxes":[[[0,4]]],"pieces":[
{"rank":0,"file":"model.safetensors","source":"b.norm","source_shape":[4],"at":[0],"source_at":[0],"steps":[{"count":4,"axis":0,"stride":1,"source_axis":0,"source_stride":1}],"plus":1,"bytes":8,"ranges":[{"offset":146,"run":8,"loops":[]}]}]}],
"together":{"bytes":8,"sources":[{"rank":0,"file":"model.safetensors","bytes":8}]}}
$ reshard explain hf -o convert=own.rules --param table --format ckpt --json
{"source":"…/hf","parameter":"table","shown_as":"table","dtype":"Float32","shown_dtype":"Float32","shape":[4, 2],"copied":false,"rule":{"file":"own.rules","line":4},"source_layout":null,"destination_layout":null,"slices":[
{"rank":0,"shape":[4, 2],"bytes":32,"file":"rank_0/checkpoint_0.ckpt","offset":58,"boxes":[[[0,4],[0,2]]],"pieces":[
{"rank":0,"file":"model.safetensors","source":"b.table","source_shape":[3,2],"at":[0,0],"source_at":[0,0],"steps":[{"count":3,"axis":0,"stride":1,"source_axis":0,"source_stride":1},{"count":2,"axis":1,"stride":1,"source_axis":1,"source_stride":1}],"bytes":24,"ranges":[{"offset":154,"run":24,"loops":[]}]},
{"rank":0,"file":"model.safetensors","source":"b.table","source_shape":[3,2],"at":[3,0],"source_at":[0,0],"steps":[{"count":2,"axis":1,"stride":1,"source_axis":0,"source_stride":0}],"zeros":true,"bytes":0,"ranges":[]}]}],
"together":{"bytes":24,"sources":[{"rank":0,"file":"model.safetensors","bytes":24}]}}
$ reshard explain hf -o convert=own.rules
rank  parameters  bytes  files  from ranks  source bytes
   0           2     40      1  0                     32

1 rank of the destination together: 32 bytes from 1 source rank, each byte counted once
$ reshard explain hf -o convert=own.rules --param table --svg - | grep -c '<path'
2

# A cut that leaves zeros alone to the last rank.
$ reshard export hf ranks -o 'convert=own.rules,convert_options=multiple=6,dst_ranks=2,dst_rules=table: axis 0 over all;norm: whole,format=ckpt'
…/ranks: 2 files written, 164 bytes in … s; 0 were there, 0 bytes
$ reshard verify ranks --against hf -o 'convert=own.rules,convert_options=multiple=6,dst_ranks=2,dst_rules=table: axis 0 over all;norm: whole,format=ckpt'
ranks: 2 tensors, 56 bytes: the same as hf, all 2 ranks agree

# The other side: without what was added, and without the rows behind those of the config, whatever they have.
$ python3 - <<'END'
> import os, struct
> tensors = {"norm": (b'"BF16","shape":[4]', struct.pack("<4H", 0x3fc0, 0x3f40, 0x3f80, 0x3f82)),
>            "table": (b'"F32","shape":[5,2]', struct.pack("<10f", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10))}
> head = ",".join('"%s":{"dtype":%s,"data_offsets":[%d,%d]}' % (n, t.decode(), 0 if n == "norm" else 8, 8 if n == "norm" else 48)
>                 for n, (t, _) in tensors.items()).join("{}")
> os.mkdir("trained")
> with open("trained/model.safetensors", "wb") as file:
>     file.write(struct.pack("<Q", len(head)) + head.encode() + b"".join(d for _, d in tensors.values()))
> END
$ reshard get trained b.norm - -o convert=own.rules,hf_config=hf/config.json | tail -c 8 | od -An -tx2
 3f00 be80 0000 3c80
$ reshard get trained b.table - -o convert=own.rules,hf_config=hf/config.json | tail -c 24 | od -An -tf4 -w8
               1               2
               3               4
               5               6
$ reshard explain trained -o convert=own.rules,hf_config=hf/config.json --param b.norm
rank_0: b.norm [4] BFloat16: [:]
  made by own.rules: line 3; places are in whole tensors
    [:] is norm [:] - 1 in model.safetensors, 8 bytes
$ reshard diff hf trained -o convert=own.rules,hf_config=hf/config.json
   name   dtype    shape            differ  max abs  max rel  NaN  inf  cosine
!  table  Float32  [4, 2] → [5, 2]

the same: 1, different: 1, only in hf: 0, only in trained: 0
(exit 1)
$ reshard diff trained hf -o convert=own.rules,hf_config=hf/config.json
   name    dtype     shape  differ  max abs  max rel  NaN  inf       cosine
!  b.norm  BFloat16  [4]         2  0.00391        1    0    0  0.999951214

the same: 1, different: 1, only in trained: 0, only in hf: 0
(exit 1)

# A changed byte is found, with its place in the tree.
$ chmod u+w ranks/rank_0/checkpoint_0.ckpt; printf '\x80' | dd of=ranks/rank_0/checkpoint_0.ckpt bs=1 seek=$(($(stat -c %s ranks/rank_0/checkpoint_0.ckpt) - 1)) conv=notrunc status=none
$ reshard verify ranks --against hf -o 'convert=own.rules,convert_options=multiple=6,dst_ranks=2,dst_rules=table: axis 0 over all;norm: whole,format=ckpt'
table: has other bytes than the source in rank 0, first at [2, 1], …/ranks/rank_0/checkpoint_0.ckpt offset 81
ranks: 2 tensors, 56 bytes: not right: 1 tensor
(exit 1)

# Quantized weights have no type in which the sum would count.
$ python3 - <<'END'
> import os, struct
> head = '{"b.weight":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[0,4]},' \
>     '"b.weight_scale_inv":{"dtype":"F32","shape":[1,1],"data_offsets":[4,8]}}'
> os.mkdir("fp8")
> with open("fp8/model.safetensors", "wb") as file:
>     file.write(struct.pack("<Q", len(head)) + head.encode() + bytes([0x38, 0x40, 0x44, 0x48]) + struct.pack("<f", 0.5))
> END
$ echo '{"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}' > fp8/config.json
$ printf 'sides a b\nw = plus(1, b.weight [2, 2])\n' > plus.rules; printf 'sides a b\nw = pad(1, 3, b.weight [2, 2])\n' > pad.rules
$ reshard get fp8 w - -o convert=plus.rules,dequantize
reshard: error: …/fp8: parameter 'b.weight': is quantized, and plus is for tensors that are stored as numbers; try: rules without plus for it
(exit 1)
$ reshard get fp8 w - -o convert=pad.rules,dequantize | tail -c 12 | od -An -tx2
 3f00 3f80 0000 3fc0 4000 0000
