# Where the bytes of hfai's parts come from. Saved in three; tensors of more than 1000 bytes are cut over all of them.
$ python3 $top_srcdir/tests/golden/save_parts.py saved 3 1000
$ explain() { reshard explain saved "$@"; }
$ explain -o nshards=5
part  parameters  bytes  files  from parts  source bytes
   0           4   2676      3  0-2                 2676
   1           3    652      3  0-1                  652
   2           3    148      3  0                    148
   3           3     76      3  0,2                   76
   4           1      4      3  0                      4

5 parts of the destination together: 3540 bytes (3.5 KiB) from 3 source parts, each byte counted once; 3556 if each part reads its own
$ explain -o nshards=5 --rank 1
part  parameters  bytes  files  from parts  source bytes
   1           3    652      3  0-1                  652

from part  file         bytes
        0  PART_000.pt      4
        1  PART_001.pt    648

1 part of the destination together: 652 bytes from 2 source parts, each byte counted once
$ explain -o nshards=2,large_size=300 --ranks 1 --json
{"source":"…/saved","ranks":[
{"rank":1,"parameters":7,"bytes":1724,"files":3,"source_bytes":1724,"sources":[{"rank":0,"file":"PART_000.pt","bytes":4},{"rank":1,"file":"PART_001.pt","bytes":760},{"rank":2,"file":"PART_002.pt","bytes":960}]}],
"together":{"bytes":1724,"sources":[{"rank":0,"file":"PART_000.pt","bytes":4},{"rank":1,"file":"PART_001.pt","bytes":760},{"rank":2,"file":"PART_002.pt","bytes":960}]}}

# Cut anew, from three pieces to five that do not divide; joined; what is whole and is cut; whole as it was.
$ explain -o nshards=5,large_size=1000 --param embed
embed: Float32 [37, 9], 1.3 KiB
cut as       a row of 333 elements
source       a piece in each of 3 parts
destination  a piece in each of 5 parts

part  slice      shape  bytes  from parts  source bytes
   0  [0:67]     [67]     268  0                    268
   1  [67:134]   [67]     268  0-1                  268
   2  [134:201]  [67]     268  1                    268
   3  [201:268]  [67]     268  1-2                  268
   4  [268:333]  [65]     260  2                    260

5 parts of the destination together: 1332 bytes (1.3 KiB) from 3 source parts, each byte counted once
$ explain -o nshards=5,large_size=1000 --param embed --rank 1
embed: Float32 [37, 9], 1.3 KiB
cut as       a row of 333 elements
source       a piece in each of 3 parts
destination  a piece in each of 5 parts
part 1       [67:134]: Float32 [67], 268 bytes from offset 1152 of PART_001.pt

from part  of the tensor  of its slice  to       offset  run  times  every  bytes
        0  [67:111]       [67:111]      [0:44]     1202  176      1           176
        1  [111:134]      [0:23]        [44:67]    1109   92      1            92

part 0  PART_000.pt
part 1  PART_001.pt

2 pieces from 2 source parts, 268 bytes
$ explain -o nshards=5,large_size=1000 --param embed --rank 1 --json
{"source":"…/saved","parameter":"embed","shown_as":"embed","dtype":"Float32","shown_dtype":"Float32","shape":[37, 9],"copied":false,"source_layout":null,"destination_layout":null,"slices":[
{"rank":1,"shape":[67],"bytes":268,"file":"PART_001.pt","offset":1152,"boxes":[[[67,134]]],"pieces":[
{"rank":0,"instead_of":null,"file":"PART_000.pt","box":[[67,111]],"source_box":[[67,111]],"destination_box":[[0,44]],"bytes":176,"ranges":[{"offset":1202,"run":176,"loops":[]}],"same":[],"left_out":[],"lost":[]},
{"rank":1,"instead_of":null,"file":"PART_001.pt","box":[[111,134]],"source_box":[[0,23]],"destination_box":[[44,67]],"bytes":92,"ranges":[{"offset":1109,"run":92,"loops":[]}],"same":[],"left_out":[],"lost":[]}]}],
"together":{"bytes":268,"sources":[{"rank":0,"file":"PART_000.pt","bytes":176},{"rank":1,"file":"PART_001.pt","bytes":92}]}}
$ explain -o nshards=2 --param embed --rank 0
embed: Float32 [37, 9], 1.3 KiB
cut as       a row of 333 elements
source       a piece in each of 3 parts
destination  whole in part 0
part 0       [:]: Float32 [37, 9], 1332 bytes from offset 832 of PART_000.pt

from part  of the tensor  of its slice  to         offset  run  times  every  bytes
        0  [0:111]        [:]           [0:111]       934  444      1           444
        1  [111:222]      [:]           [111:222]    1109  444      1           444
        2  [222:333]      [:]           [222:333]     811  444      1           444

part 0  PART_000.pt
part 1  PART_001.pt
part 2  PART_002.pt

3 pieces from 3 source parts, 1332 bytes
$ explain -o nshards=4,large_size=300 --param optimizer.state.1.exp_avg
optimizer.state.1.exp_avg: Float32 [9, 9], 324 bytes
cut as       a row of 81 elements
source       whole in part 1
destination  a piece in each of 4 parts

part  slice    shape  bytes  from parts  source bytes
   0  [0:21]   [21]      84  1                     84
   1  [21:42]  [21]      84  1                     84
   2  [42:63]  [21]      84  1                     84
   3  [63:81]  [18]      72  1                     72

4 parts of the destination together: 324 bytes from 1 source part, each byte counted once
$ explain -o nshards=4,large_size=300 --param optimizer.state.1.exp_avg --rank 2
optimizer.state.1.exp_avg: Float32 [9, 9], 324 bytes
cut as       a row of 81 elements
source       whole in part 1
destination  a piece in each of 4 parts
part 2       [42:63]: Float32 [21], 84 bytes from offset 2240 of PART_002.pt

from part  of the tensor  of its slice  to   offset  run  times  every  bytes
        1  [42:63]        [42:63]       [:]    1766   84      1            84

part 1  PART_001.pt

1 piece from 1 source part, 84 bytes
$ explain -o nshards=4 --param first.bias
first.bias: Float32 [9], 36 bytes
source       whole in part 2
destination  whole in part 3

part  slice  shape  bytes  from parts  source bytes
   3  whole  [9]       36  2                     36

1 part of the destination together: 36 bytes from 1 source part, each byte counted once
$ explain -o nshards=4 --param first.bias --json
{"source":"…/saved","parameter":"first.bias","shown_as":"first.bias","dtype":"Float32","shown_dtype":"Float32","shape":[9],"copied":true,"source_layout":null,"destination_layout":null,"slices":[
{"rank":3,"shape":[9],"bytes":36,"file":"PART_003.pt","offset":768,"boxes":[],"pieces":[
{"rank":2,"instead_of":null,"file":"PART_002.pt","box":[[0,9]],"source_box":[[0,9]],"destination_box":[[0,9]],"bytes":36,"ranges":[{"offset":730,"run":36,"loops":[]}]}]}],
"together":{"bytes":36,"sources":[{"rank":2,"file":"PART_002.pt","bytes":36}]}}

# A transposed one, those that are in every part and in the first, and more parts than elements.
$ explain -o nshards=2 --param last
last: Float32 [9, 2], 72 bytes
source       whole in part 0
destination  whole in part 1

part  slice  shape   bytes  from parts  source bytes
   1  whole  [9, 2]     72  0                     72

1 part of the destination together: 72 bytes from 1 source part, each byte counted once
$ explain -o nshards=2 --param last --rank 1
last: Float32 [9, 2], 72 bytes
source       whole in part 0
destination  whole in part 1
part 1       Float32 [9, 2], 72 bytes

from part  of the tensor  of its slice  to      offset  run  times  every  bytes
        0  [:, :]         [:, :]        [:, :]     817    4  9 * 2  4, 36     72

part 0  PART_000.pt

1 piece from 1 source part, 72 bytes
$ explain -o nshards=2 --param optimizer.param_groups.0.lr
optimizer.param_groups.0.lr: Float32 [], 4 bytes
source       whole in part 0
destination  whole in every part

part  slice  shape  bytes  from parts  source bytes
   0  whole  []         4  0                      4
   1  whole  []         4  0                      4

2 parts of the destination together: 4 bytes from 1 source part, each byte counted once; 8 if each part reads its own
$ explain -o nshards=2 --param mask --ranks 0
mask: Float32 [2], 8 bytes
source       whole in part 0
destination  whole in part 0

part  slice  shape  bytes  from parts  source bytes
   0  whole  [2]        8  0                      8

1 part of the destination together: 8 bytes from 1 source part, each byte counted once
$ explain -o nshards=6,large_size=0 --param mask --rank 0
mask: Float32 [2], 8 bytes
source       whole in part 0
destination  whole in part 0
part 0       Float32 [2], 8 bytes from offset 3008 of PART_000.pt

from part  of the tensor  of its slice  to   offset  run  times  every  bytes
        0  [:]            [:]           [:]    1589    8      1             8

part 0  PART_000.pt

1 piece from 1 source part, 8 bytes
$ explain -o nshards=100,large_size=0 --param first.bias --rank 99
first.bias: Float32 [9], 36 bytes
cut as       a row of 9 elements
source       whole in part 2
destination  a piece in each of 100 parts
part 99      [9:9]: Float32 [0], 0 bytes

It has no bytes: nothing is read for it.

# Pictures.
$ explain -o nshards=5,large_size=1000 --param embed --svg embed.svg | tail -n 1
5 parts of the destination together: 1332 bytes (1.3 KiB) from 3 source parts, each byte counted once
$ grep '<text' embed.svg
<text x="24" y="30" class="h">embed</text>
<text x="24" y="49" class="t">Float32 [37, 9], from 3 parts to 5</text>
<text x="24" y="80" class="s">source: a piece in each of 3 parts</text>
<text x="936" y="80" class="s e">destination: a piece in each of 5 parts</text>
<text x="236" y="122.9" class="k">[0:67], 268 bytes</text>
<text x="654" y="116.9" class="k e">[0:67]</text>
<text x="236" y="150.9" class="k">[67:111], 176 bytes</text>
<text x="654" y="150.9" class="k e">[67:111]</text>
<text x="236" y="173.8" class="k">[0:23], 92 bytes</text>
<text x="654" y="167.8" class="k e">[111:134]</text>
<text x="236" y="196.5" class="k">[23:90], 268 bytes</text>
<text x="654" y="196.5" class="k e">[134:201]</text>
<text x="236" y="241.6" class="k">[0:46], 184 bytes</text>
<text x="654" y="241.6" class="k e">[222:268]</text>
<text x="236" y="269.6" class="k">[46:111], 260 bytes</text>
<text x="654" y="275.6" class="k e">[268:333]</text>
<text x="180" y="134" class="e">part 0</text>
<text x="180" y="196" class="e">part 1</text>
<text x="180" y="258" class="e">part 2</text>
<text x="710" y="116.9" class="t">part 0 [0:67]</text>
<text x="710" y="156.7" class="t">part 1 [67:134]</text>
<text x="710" y="196.5" class="t">part 2 [134:201]</text>
<text x="710" y="236.3" class="t">part 3 [201:268]</text>
<text x="710" y="275.6" class="t">part 4 [268:333]</text>
<text x="24" y="314" class="s">Each colour is what one source part gives, and on the right where its bytes go: 7 pieces, 1.3 KiB, each slice once.</text>
<text x="24" y="330" class="s">Left are the parts that are read, and places in their tensors; right are places in the whole tensor.</text>
$ explain -o nshards=5 --param first.bias --rank 3 --svg - | grep '<text'
<text x="24" y="30" class="h">first.bias</text>
<text x="24" y="49" class="t">Float32 [9], from 3 parts to 5; the slice of part 3</text>
<text x="24" y="80" class="s">source: whole in part 2</text>
<text x="936" y="80" class="s e">destination: whole in part 3</text>
<text x="236" y="178" class="k">[:], 36 bytes</text>
<text x="654" y="178" class="k e">[:]</text>
<text x="180" y="178" class="e">part 2</text>
<text x="710" y="178" class="t">part 3 [:]</text>
<text x="24" y="278" class="s">Each colour is what one source part gives, and on the right where its bytes go: 1 piece, 36 bytes.</text>
<text x="24" y="294" class="s">Left are the parts that are read, and places in their tensors; right are places in the whole tensor.</text>

# What is told is so: the bytes at those places are those of the parts of an export.
$ reshard export saved out -o nshards=5,large_size=300 >/dev/null 2>&1
$ python3 - <<'END'
> import itertools, json, os, subprocess
> def read(path, ranges):
>     with open(path, "rb") as file:
>         return b"".join(os.pread(file.fileno(), r["run"], r["offset"] + sum(i * l["stride"] for i, l in zip(at, r["loops"])))
>                         for r in ranges for at in itertools.product(*(range(l["count"]) for l in r["loops"])))
> slices = 0
> for name in ("embed", "first.weight", "first.bias", "mask", "optimizer.state.0.exp_avg", "optimizer.state.3.exp_avg"):
>     told = json.loads(subprocess.check_output(["reshard", "explain", "saved", "-o", "nshards=5,large_size=300",
>                                                "--param", name, "--json"]))
>     for slice in told["slices"]:
>         shown = read("out/" + slice["file"], [{"offset": slice["offset"], "run": slice["bytes"], "loops": []}])
>         assert b"".join(read("saved/" + p["file"], p["ranges"]) for p in slice["pieces"]) == shown, (name, slice)
>         slices += 1
> print(slices, "slices are what they are said to be")
> END
18 slices are what they are said to be

# What does not fit.
$ explain -o nshards=5 --param nothing
reshard: error: …/saved: parameter 'nothing': no destination part has it; try: reshard stats, which lists the names
(exit 1)
$ explain -o nshards=5 --param embed --rank 1
reshard: error: …/saved: parameter 'embed': part 1 of the destination does not have it; try: --rank 0, which has it
(exit 1)
$ explain -o nshards=5 --param embed --ranks 1-4
reshard: error: …/saved: parameter 'embed': none of these destination parts has it; try: --rank 0, which has it
(exit 1)
$ explain -o nshards=5 --param embed --rank 5
reshard: error: there is no rank 5 of 5; try: ranks 0 to 4
(exit 2)
$ explain -o nshards=5 -d dst.ckpt --param embed
reshard: error: option dst_strategy has no effect on a source in hfai's parts; try: nshards=, large_size= and zip_crc alone
(exit 2)
$ explain -o nshards=5,check=crc --param embed
reshard: error: option check has no effect on a source in hfai's parts; try: nshards=, large_size= and zip_crc alone
(exit 2)
$ explain -o nshards=5,only=embed --param embed
reshard: error: option only has no effect on a source in hfai's parts; try: nshards=, large_size= and zip_crc alone
(exit 2)
$ explain -o nshards=5,drop=head --param embed
reshard: error: option drop has no effect on a source in hfai's parts; try: nshards=, large_size= and zip_crc alone
(exit 2)
$ rm saved/PART_001.pt; explain -o nshards=5 --param embed
reshard: error: …/saved: the folder holds 2 files PART_*.pt, and 'PART_002.pt' is none of PART_000.pt to PART_001.pt; try: move files of another save away, or copy the missing ones there
(exit 1)

# A manifest that cannot be read is said, also where a part is damaged.
$ truncate -s 100 saved/PART_001.pt; echo '{bad' >sums.json; reshard verify saved --manifest sums.json
reshard: error: sums.json: offset 1: not a manifest that can be read: a string is expected here; try: another FILE, or --write to replace it
(exit 2)
