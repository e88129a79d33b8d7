# Saves of other programs, as they wrote them (tests/fixtures/make_layouts.py): what each is, and its weight where it is read.
$ cp -r $top_srcdir/tests/fixtures/layouts/* . && chmod -R u+w . && find . -name .metadata -exec touch {} +

# Accelerate: a folder for the model, one for the optimizer
$ reshard suggest accelerate
# accelerate: a folder with checkpoints in it
# a checkpoint in it
reshard suggest accelerate/optimizer_0
# a checkpoint in it
reshard suggest accelerate/pytorch_model_fsdp_0
$ reshard suggest accelerate/pytorch_model_fsdp_0
# accelerate/pytorch_model_fsdp_0: a checkpoint of torch.distributed.checkpoint, which describes itself: 1 tensor
# fill in NEW, a path to write to; MNT, an empty folder
# note: conversion rules are looked for with the model's config.json: give it with -o hf_config=FILE
# safetensors, as HuggingFace's programs keep them
reshard export accelerate/pytorch_model_fsdp_0 NEW -o entry=model,view=huggingface
# a file that torch.load reads
reshardfs accelerate/pytorch_model_fsdp_0 MNT -o format=pt
# what is in it
reshard info accelerate/pytorch_model_fsdp_0
$ reshard export accelerate/pytorch_model_fsdp_0 model -o view=huggingface,entry=model && reshard stats model
…/model: 1 file written, 200 bytes in … s; 0 were there, 0 bytes
name      dtype    shape   min    max   mean     std  nan  inf  zeros
a.weight  Float32  [6, 4]    0  2.875  1.438  0.8653    0    0      1

1 tensor, 24 numbers: 0 NaN, 0 infinite
$ reshard info accelerate/optimizer_0
name                                      dtype    shape   chunks  cuts    bytes
optimizer.state.a.weight.momentum_buffer  Float32  [6, 4]       2  [2, 1]     96

file          chunks  bytes  file bytes
__0_0.distcp       1     48        1577
__1_0.distcp       1     48       14187

checkpoint: of torch.distributed.checkpoint, 1 tensors in 2 chunks; 2 files of 15764 bytes
types: 1 Float32 (96 bytes)

# Lightning: a file of torch.save by the name .ckpt, and a folder of torch.distributed.checkpoint by that name
$ reshard suggest lightning/epoch=0-step=1.ckpt
# lightning/epoch=0-step=1.ckpt: one whole checkpoint, pt
# fill in NEW, a path to write to
# safetensors, as HuggingFace's programs keep them
reshard export lightning/epoch=0-step=1.ckpt NEW -o entry=state_dict,view=huggingface
# what is in it
reshard info lightning/epoch=0-step=1.ckpt
$ reshard export lightning/epoch=0-step=1.ckpt file -o view=huggingface,entry=state_dict && reshard stats file
…/file: 1 file written, 208 bytes in … s; 0 were there, 0 bytes
name          dtype    shape   min    max   mean     std  nan  inf  zeros
net.a.weight  Float32  [6, 4]    0  2.875  1.438  0.8653    0    0      1

1 tensor, 24 numbers: 0 NaN, 0 infinite
$ reshard info --json lightning/step=2.ckpt | grep -o '"aside":[^]]*]'
"aside":[{"file":"meta.pt","why":"a state of the training","tensors_of_its_own":null,"first":null}]
$ reshard export lightning/step=2.ckpt folder -o view=huggingface,entry=model && reshard stats folder
…/folder: 1 file written, 200 bytes in … s; 0 were there, 0 bytes
name      dtype    shape   min    max   mean     std  nan  inf  zeros
a.weight  Float32  [6, 4]    0  2.875  1.438  0.8653    0    0      1

1 tensor, 24 numbers: 0 NaN, 0 infinite
$ reshard info lightning
name                     dtype    shape   bytes  offset
state_dict.net.a.weight  Float32  [6, 4]     96    2176

checkpoint: 1 parameter, 96 bytes of content in a file of 3113
format: pt
types: 1 Float32 (96 bytes)
and 74 values that are no tensors
note: several checkpoints: up to 2 in a folder: the last by name counts

# torchtitan: a folder for each step
$ reshard info torchtitan
reshard: error: torchtitan: holds no checkpoint; try: torchtitan/checkpoint/step-2
(exit 1)
$ reshard export torchtitan/checkpoint/step-2 titan -o view=huggingface && reshard stats titan
…/titan: 1 file written, 200 bytes in … s; 0 were there, 0 bytes
name      dtype    shape   min    max   mean     std  nan  inf  zeros
a.weight  Float32  [6, 4]    0  2.875  1.438  0.8653    0    0      1

1 tensor, 24 numbers: 0 NaN, 0 infinite

# torch's recipe: the model and the optimizer in a dict of one object
$ reshard export recipe app -o view=huggingface
reshard: warning: …/recipe/.metadata: 10 values that are not tensors are left out
reshard: warning: the names of the weights begin with 'app.model.', the dict of the state that has them: a loader may know them without it; try: entry=app.model
…/app: 1 file written, 408 bytes in … s; 0 were there, 0 bytes
$ reshard suggest recipe
# recipe: a checkpoint of torch.distributed.checkpoint, which describes itself: 2 tensors
# fill in NEW, a path to write to; MNT, an empty folder
# note: conversion rules are looked for with the model's config.json: give it with -o hf_config=FILE
# safetensors, as HuggingFace's programs keep them
reshard export recipe NEW -o entry=app.model,view=huggingface
# a file that torch.load reads
reshardfs recipe MNT -o format=pt
# what is in it
reshard info recipe
$ reshard export recipe recipe-model -o entry=app.model,view=huggingface && reshard stats recipe-model
…/recipe-model: 1 file written, 200 bytes in … s; 0 were there, 0 bytes
name      dtype    shape   min    max   mean     std  nan  inf  zeros
a.weight  Float32  [6, 4]    0  2.875  1.438  0.8653    0    0      1

1 tensor, 24 numbers: 0 NaN, 0 infinite

# llama.cpp
$ reshard suggest gguf
# gguf: one whole checkpoint, GGUF
# fill in NEW, a path to write to
# safetensors, as HuggingFace's programs keep them
reshard export gguf NEW -o view=huggingface
# what is in it
reshard info gguf
$ reshard export gguf gguf-model -o view=huggingface && reshard stats gguf-model
reshard: warning: …/gguf/model.gguf: 1 value that is not a tensor is left out
…/gguf-model: 1 file written, 200 bytes in … s; 0 were there, 0 bytes
name      dtype    shape   min    max   mean     std  nan  inf  zeros
a.weight  Float32  [6, 4]    0  2.875  1.438  0.8653    0    0      1

1 tensor, 24 numbers: 0 NaN, 0 infinite

# Files whose names are of another format: each command reads or refuses them alike
$ mkdir named && cp gguf/model.gguf named/model.safetensors && reshard info named
reshard: error: named/model.safetensors: begins as a .gguf file, and is taken for a .safetensors file by its name; try: a name in .gguf, if it is one
(exit 1)
$ reshard info named/model.safetensors
reshard: error: named/model.safetensors: begins as a .gguf file, and is taken for a .safetensors file by its name; try: a name in .gguf, if it is one
(exit 1)
$ reshard stats named
reshard: error: …/named/model.safetensors: begins as a .gguf file, and is taken for a .safetensors file by its name; try: a name in .gguf, if it is one
(exit 1)
$ reshard diff named gguf
reshard: error: …/named/model.safetensors: begins as a .gguf file, and is taken for a .safetensors file by its name; try: a name in .gguf, if it is one
(exit 2)
$ reshard verify named --against gguf
reshard: warning: …/gguf/model.gguf: 1 value that is not a tensor is left out
reshard: error: …/named/model.safetensors: begins as a .gguf file, and is taken for a .safetensors file by its name; try: a name in .gguf, if it is one
(exit 2)
$ reshard get named a.weight weight.npy
reshard: error: …/named/model.safetensors: begins as a .gguf file, and is taken for a .safetensors file by its name; try: a name in .gguf, if it is one
(exit 1)
$ reshard export named again -o view=huggingface
reshard: error: …/named/model.safetensors: begins as a .gguf file, and is taken for a .safetensors file by its name; try: a name in .gguf, if it is one
(exit 1)
$ mv named/model.safetensors named/pytorch_model.bin && reshard info named
name      dtype    shape   bytes  offset
a.weight  Float32  [6, 4]     96     128

checkpoint: 1 parameter, 96 bytes of content in a file of 224
format: gguf
types: 1 Float32 (96 bytes)
and 1 value that is no tensor
  general.architecture: llama
$ reshard info named/pytorch_model.bin
name      dtype    shape   bytes  offset
a.weight  Float32  [6, 4]     96     128

checkpoint: 1 parameter, 96 bytes of content in a file of 224
format: gguf
types: 1 Float32 (96 bytes)
and 1 value that is no tensor
  general.architecture: llama
$ reshard stats named
reshard: warning: …/named/pytorch_model.bin: 1 value that is not a tensor is left out
name      dtype    shape   min    max   mean     std  nan  inf  zeros
a.weight  Float32  [6, 4]    0  2.875  1.438  0.8653    0    0      1

1 tensor, 24 numbers: 0 NaN, 0 infinite
$ reshard diff named gguf
reshard: warning: …/named/pytorch_model.bin: 1 value that is not a tensor is left out
reshard: warning: …/gguf/model.gguf: 1 value that is not a tensor is left out
1 tensor is the same
$ reshard verify named --against gguf
reshard: warning: …/gguf/model.gguf: 1 value that is not a tensor is left out
reshard: warning: …/named/pytorch_model.bin: 1 value that is not a tensor is left out
note: the files are laid out differently from a mount with these options: the tensors were compared, and nothing else
named: 1 tensor, 96 bytes: the same as gguf
$ reshard get named a.weight weight.npy && reshard stats named/pytorch_model.bin
reshard: warning: …/named/pytorch_model.bin: 1 value that is not a tensor is left out
reshard: warning: …/named/pytorch_model.bin: 1 value that is not a tensor is left out
name      dtype    shape   min    max   mean     std  nan  inf  zeros
a.weight  Float32  [6, 4]    0  2.875  1.438  0.8653    0    0      1

1 tensor, 24 numbers: 0 NaN, 0 infinite
$ mv named/pytorch_model.bin named/model.ckpt && reshard info named/model.ckpt
reshard: error: named/model.ckpt: begins as a .gguf file, and is taken for a .ckpt file by its name; try: a name in .gguf, if it is one
(exit 1)
$ reshard stats named/model.ckpt
reshard: error: …/named/model.ckpt: begins as a .gguf file, and is taken for a .ckpt file by its name; try: a name in .gguf, if it is one
(exit 1)

# not read
$ reshard info orbax
reshard: error: orbax: this is a checkpoint of Orbax, as '_CHECKPOINT_METADATA' shows; this format is not read; try: Orbax to load it, and save_file of safetensors to save it
(exit 1)
