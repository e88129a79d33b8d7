# Which source ranks a destination rank needs: of the tutorial's network, of other numbers, and of pipelines.
$ reshard example work >/dev/null; cd work
$ reshard ranks -s src_strategy.ckpt -d dst_strategy.ckpt
rank  source ranks
   0  0,2
   1  1,3
   2  0,2
   3  1,3
$ reshard ranks 2 -s src_strategy.ckpt -d dst_strategy.ckpt
0,2
$ reshard ranks 2-3 -s src_strategy.ckpt -d dst_strategy.ckpt --json
{"destination_ranks":4,"source_ranks":8,"rows":[{"rank":2,"source_ranks":[0,2]},
{"rank":3,"source_ranks":[1,3]}]}
$ reshard ranks 0 -s src_strategy.ckpt
0,2
$ reshard ranks -d dst_strategy.ckpt
rank  source ranks
   0  0
   1  0
   2  0
   3  0
$ reshard example e --src 64 --dst 56 --cut rows --layers 1 --hidden 1 --force >/dev/null
$ reshard ranks 0,30,55 -s e/src_strategy.ckpt -d e/dst_strategy.ckpt
rank  source ranks
   0  0-1
  30  30,34-35
  55  55,62-63
$ reshard ranks 0-3 -s $top_srcdir/tests/fixtures/strategies/pipe8.ckpt -d $top_srcdir/tests/fixtures/strategies/pipe8.ckpt
rank  source ranks
   0  0
   1  1
   2  2
   3  3
$ reshard ranks
reshard: error: ranks takes a strategy; a side without one is one whole checkpoint; try: reshard ranks RANK -s FILE -d FILE
(exit 2)
$ reshard ranks x -s src_strategy.ckpt
reshard: error: RANK cannot be 'x'; try: a rank, or several: 0-7,12
(exit 2)
$ reshard ranks 4 -s src_strategy.ckpt -d dst_strategy.ckpt
reshard: error: there is no rank 4 of 4; try: ranks 0 to 3
(exit 2)
$ reshard ranks 0 -s nothing.ckpt
reshard: error: nothing.ckpt: cannot be read: No such file or directory; try: check the path
(exit 1)
$ reshard ranks 0 -s src_strategy.ckpt -d e/dst_strategy.ckpt
reshard: error: e/dst_strategy.ckpt: none of its parameters is in the source strategy src_strategy.ckpt; try: strategy files of the same network
(exit 1)
