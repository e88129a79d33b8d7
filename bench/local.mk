# SPDX-License-Identifier: Apache-2.0
#
# Built by `make bench` only.
EXTRA_PROGRAMS += bench/cache_replay bench/micro_convert bench/micro_distance bench/micro_kernels bench/micro_mapped bench/range_server bench/reader
bench_cache_replay_SOURCES = bench/cache_replay.c
bench_micro_convert_SOURCES = bench/micro_convert.c
bench_micro_distance_SOURCES = bench/micro_distance.c
bench_micro_distance_LDADD =
bench_micro_kernels_SOURCES = bench/micro_kernels.c
bench_micro_mapped_SOURCES = bench/micro_mapped.c
bench_range_server_SOURCES = bench/range_server.c
bench_range_server_LDADD =
bench_reader_SOURCES = bench/reader.c
bench_reader_LDADD =
if HAVE_FUSE
EXTRA_PROGRAMS += bench/delay_server bench/null_server
bench_delay_server_SOURCES = bench/delay_server.c
bench_delay_server_LDADD = $(FUSE_LIBS)
bench_null_server_SOURCES = bench/null_server.c
bench_null_server_LDADD = $(FUSE_LIBS)
endif
CLEANFILES += $(EXTRA_PROGRAMS)
EXTRA_DIST += bench/run bench/costs.py bench/dcp.py bench/exports.py bench/loaders.py bench/mapped.py bench/metadata.py bench/mindspore_side.py bench/objects.py bench/peers.py bench/quantized.py bench/rules.py bench/saves.py bench/scale.py bench/slow.py bench/starts.py bench/steady.py bench/transformed.py bench/zero.py
