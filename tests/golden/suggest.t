# What reshard suggest prints; tests/unit/tool/suggest pastes its commands.
$ reshard example ex >/dev/null; reshard suggest ex/src
# ex/src: a checkpoint of 8 ranks, ckpt
# fill in NEW, a path to write to; MNT, an empty folder
# as the ranks of the other strategy load it
reshardfs ex/src MNT -s ex/src_strategy.ckpt -d ex/dst_strategy.ckpt
# one whole checkpoint, in one file
reshard export ex/src NEW -s ex/src_strategy.ckpt
# what is in it
reshard info ex/src -s ex/src_strategy.ckpt
$ reshard suggest ex/src_strategy.ckpt --json
{"path":"ex/src_strategy.ckpt","about":"a strategy","notes":[],"commands":[{"why":"how it cuts each parameter","command":"reshard strategy show ex/src_strategy.ckpt"},
{"why":"a copy to read and edit","command":"reshard strategy convert ex/src_strategy.ckpt NEW.json"}]}
$ cp -r ex/src src; reshard suggest src
# src: a checkpoint of 8 ranks, ckpt
# note: no strategy is near it; the training wrote one (strategy_ckpt_config, save_file): give it with -s, or its cuts with -o src_rules=, see RULES in reshardfs(1)
# what is in it
reshard info src
$ reshard suggest nowhere
reshard: error: nowhere: cannot open: No such file or directory; try: a checkpoint, a folder of one, or a strategy
(exit 1)
$ mkdir empty; reshard suggest empty
reshard: error: …/empty: the folder has no rank_N folder in it; try: give the folder that holds rank_0, rank_1 and so on
(exit 1)

# a strategy whose shapes are right, and which is not that of the files, beside that which is
$ mkdir near && reshard export ex/src near/opt -s ex/src_strategy.ckpt -d $top_srcdir/tests/fixtures/strategies/opt8.ckpt >/dev/null 2>&1; rm near/opt/reshard-manifest.json
$ cp $top_srcdir/tests/fixtures/strategies/src8.ckpt near/src_strategy.ckpt; reshard suggest near/opt
# near/opt: a checkpoint of 8 ranks, ckpt
# note: no strategy near it fits: …/near/opt/rank_5/checkpoint_5.ckpt: parameter 'layer1.weight': has other bytes than in rank_0, and is the same slice by near/src_strategy.ckpt; 6 of 12 parameters that were compared contradict it; try: another strategy; reshard verify SRC -s FILE lists all that differ; or trust_strategy, to go on all the same
# what is in it
reshard info near/opt
$ cp $top_srcdir/tests/fixtures/strategies/opt8.ckpt near/strategy.ckpt; reshard suggest near/opt
# near/opt: a checkpoint of 8 ranks, ckpt
# fill in NEW, a path to write to; MNT, an empty folder
# as the ranks of the other strategy load it
reshardfs near/opt MNT -s near/strategy.ckpt -d near/src_strategy.ckpt
# one whole checkpoint, in one file
reshard export near/opt NEW -s near/strategy.ckpt
# what is in it
reshard info near/opt -s near/strategy.ckpt
