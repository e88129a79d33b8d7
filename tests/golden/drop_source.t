# Tensors of a source that its rules do not know: drop_source= leaves them out before the rules.
$ python3 - <<'END'
> import json, os, struct
> names = ["b.norm", "mtp.norm", "vision.norm"]
> head = {n: {"dtype": "F32", "shape": [2], "data_offsets": [8 * i, 8 * i + 8]} for i, n in enumerate(names)}
> text = json.dumps(head).encode()
> os.mkdir("hf")
> with open("hf/model.safetensors", "wb") as file:
>     file.write(struct.pack("<Q", len(text)) + text + struct.pack("<6f", 1, 2, 3, 4, 5, 6))
> END
$ echo '{"n": 2}' > hf/config.json
$ printf 'sides training huggingface\nnorm = b.norm [config.n]\n' > own.rules
$ reshard stats hf -o convert=own.rules
reshard: error: …/hf: parameter 'mtp.norm': is taken by no rule of own.rules; rules take 'b.norm'; try: drop_source=NAME, or drop in the rules, if it is not part of the model
(exit 1)
$ reshard stats hf -o 'convert=own.rules,drop_source=mtp.*;vision.*'
name  dtype    shape  min  max  mean  std  nan  inf  zeros
norm  Float32  [2]      1    2   1.5  0.5    0    0      0

1 tensor, 2 numbers: 0 NaN, 0 infinite
$ reshard stats hf -o 'convert=own.rules,drop_source=*.norm'
reshard: error: …/hf: only=, drop=, drop_source= and names= leave nothing that rank_0 of the destination takes; try: a parameter of each rank in only=; or an export of other --ranks
(exit 1)
$ reshard stats hf -o 'convert=own.rules,drop_source=mtp.*;tower.*;vision.*'
reshard: warning: option drop_source: no name is like tower.*
name  dtype    shape  min  max  mean  std  nan  inf  zeros
norm  Float32  [2]      1    2   1.5  0.5    0    0      0

1 tensor, 2 numbers: 0 NaN, 0 infinite
$ reshard stats hf -o 'convert=own.rules,drop_source=mpt.*'
reshard: error: option drop_source: no name is like 'mpt.*'; try: drop_source='mtp.norm'
(exit 2)
$ reshard stats hf -o 'drop_source=mtp.*'
reshard: error: option drop_source is for conversion rules, and none are given; try: drop=PATTERN, for names as they are shown
(exit 2)
