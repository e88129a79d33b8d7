# How the tutorial's strategy of 8 devices spreads its tensors.
$ reshard example work >/dev/null; cd work
$ reshard layout src_strategy.ckpt
12 parameters in 4 layouts, 1 stage of 8 devices

2 parameters: devices [2, 2, 2], map [1, -1]
  axis 0 in 2, on 4 ranks each
  moments.layer3.weight, layer3.weight
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

2 parameters: devices [8], map [-1, -1]
  whole on each of 8 devices
  layer2.weight, moments.layer2.weight
  ┌────────┬────────┬────────┬────────┬────────┬────────┬────────┬────────┐
  │ rank 0 │ rank 1 │ rank 2 │ rank 3 │ rank 4 │ rank 5 │ rank 6 │ rank 7 │
  │ [:, :] │ [:, :] │ [:, :] │ [:, :] │ [:, :] │ [:, :] │ [:, :] │ [:, :] │
  └────────┴────────┴────────┴────────┴────────┴────────┴────────┴────────┘

6 parameters: devices [8], map [-1]
  whole on each of 8 devices
  moments.layer2.bias, layer1.bias, layer3.bias, layer2.bias, moments.layer1.bias, moments.layer3.bias
  ┌────────┬────────┬────────┬────────┬────────┬────────┬────────┬────────┐
  │ rank 0 │ rank 1 │ rank 2 │ rank 3 │ rank 4 │ rank 5 │ rank 6 │ rank 7 │
  │ [:]    │ [:]    │ [:]    │ [:]    │ [:]    │ [:]    │ [:]    │ [:]    │
  └────────┴────────┴────────┴────────┴────────┴────────┴────────┴────────┘

2 parameters: devices [2, 2, 2], map [-1, 1]
  axis 1 in 2, on 4 ranks each
  moments.layer1.weight, layer1.weight
  device axis 2 at 0:
  ┌────────────┬────────────┐
  │ rank 0     │ rank 1     │
  │ [:, 0:1/2] │ [:, 0:1/2] │
  ├────────────┼────────────┤
  │ rank 2     │ rank 3     │
  │ [:, 1/2:1] │ [:, 1/2:1] │
  └────────────┴────────────┘
  device axis 2 at 1:
  ┌────────────┬────────────┐
  │ rank 4     │ rank 5     │
  │ [:, 0:1/2] │ [:, 0:1/2] │
  ├────────────┼────────────┤
  │ rank 6     │ rank 7     │
  │ [:, 1/2:1] │ [:, 1/2:1] │
  └────────────┴────────────┘
$ reshard layout src_strategy.ckpt --param layer1.weight --shape 768,48
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
$ LC_ALL=C reshard layout dst_strategy.ckpt --param layer1.weight
12 parameters in 4 layouts, 1 stage of 4 devices

1 parameter: devices [4], map [0, -1]
  axis 0 in 4
  layer1.weight
  +--------------+--------------+--------------+--------------+
  | rank 0       | rank 1       | rank 2       | rank 3       |
  | [0:1/4, :]   | [1/4:2/4, :] | [2/4:3/4, :] | [3/4:1, :]   |
  +--------------+--------------+--------------+--------------+
$ COLUMNS=40 reshard layout dst_strategy.ckpt --param layer1.weight
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
$ reshard layout dst_strategy.ckpt --param layer1.weight --json
{"file":"dst_strategy.ckpt","stages":1,"devices":4,"layouts":[
{"stage":0,"device_matrix":[4],"tensor_map":[0, -1],"optimizer_shard":0,"shape":null,"cuts":[4,1],"replicas":1,"fields":1,"parameters":["layer1.weight"],"ranks":[
{"rank":0,"slice":0,"pieces":[0,0]},
{"rank":1,"slice":1,"pieces":[1,0]},
{"rank":2,"slice":2,"pieces":[2,0]},
{"rank":3,"slice":3,"pieces":[3,0]}]}]}
$ reshard layout src_strategy.ckpt --param layer1.weight --shape 768,48 --svg - | head -c 60
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 436
$ reshard layout $top_srcdir/tests/fixtures/strategies/pipe8.ckpt | head -n 44
18 parameters in 4 layouts, 2 stages of 4 devices

stage 0: ranks 0 to 3

6 parameters: devices [4], map [-1]
  whole on each of 4 devices
  accu_grads.layer1.bias, moments.layer1.bias, layer2.bias, layer1.bias, accu_grads.layer2.bias, moments.layer2.bias
  ┌────────┬────────┬────────┬────────┐
  │ rank 0 │ rank 1 │ rank 2 │ rank 3 │
  │ [:]    │ [:]    │ [:]    │ [:]    │
  └────────┴────────┴────────┴────────┘

3 parameters: devices [4], map [-1, -1]
  whole on each of 4 devices
  layer2.weight, moments.layer2.weight, accu_grads.layer2.weight
  ┌────────┬────────┬────────┬────────┐
  │ rank 0 │ rank 1 │ rank 2 │ rank 3 │
  │ [:, :] │ [:, :] │ [:, :] │ [:, :] │
  └────────┴────────┴────────┴────────┘

3 parameters: devices [2, 2], map [-1, 0]
  axis 1 in 2, on 2 ranks each
  moments.layer1.weight, accu_grads.layer1.weight, layer1.weight
  ┌────────────┬────────────┐
  │ rank 0     │ rank 1     │
  │ [:, 0:1/2] │ [:, 1/2:1] │
  ├────────────┼────────────┤
  │ rank 2     │ rank 3     │
  │ [:, 0:1/2] │ [:, 1/2:1] │
  └────────────┴────────────┘

stage 1: ranks 4 to 7

3 parameters: devices [2, 2], map [0, -1]
  axis 0 in 2, on 2 ranks each
  layer3.weight, moments.layer3.weight, accu_grads.layer3.weight
  ┌────────────┬────────────┐
  │ rank 4     │ rank 5     │
  │ [0:1/2, :] │ [1/2:1, :] │
  ├────────────┼────────────┤
  │ rank 6     │ rank 7     │
  │ [0:1/2, :] │ [1/2:1, :] │
  └────────────┴────────────┘
$ reshard layout
reshard: error: layout takes a strategy file; try: reshard layout FILE
(exit 2)
$ reshard layout a b
reshard: error: 'b' is a second path; try: one FILE
(exit 2)
$ reshard layout nothing
reshard: error: nothing: cannot be read: No such file or directory; try: check the path
(exit 1)
$ reshard layout src_strategy.ckpt --param nothing
reshard: error: src_strategy.ckpt: parameter 'nothing': the strategy does not have it; try: reshard layout without --param, which lists the names
(exit 1)
$ reshard layout src_strategy.ckpt --shape 4
reshard: error: --shape is that of one parameter; try: --param NAME
(exit 2)
$ reshard layout src_strategy.ckpt --param layer1.weight --shape 4,x
reshard: error: --shape cannot be '4,x'; try: a tensor's dims, such as --shape 1024,512
(exit 2)
$ reshard layout src_strategy.ckpt --param layer1.weight --shape 768,47
reshard: error: src_strategy.ckpt: parameter 'layer1.weight': its layout does not cut a tensor of this --shape; try: the dims of the whole tensor, each divided by its cuts
(exit 1)
$ reshard layout src_strategy.ckpt --param layer1.weight --shape 768
reshard: error: src_strategy.ckpt: parameter 'layer1.weight': its layout does not cut a tensor of this --shape; try: the dims of the whole tensor, each divided by its cuts
(exit 1)
