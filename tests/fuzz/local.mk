# SPDX-License-Identifier: Apache-2.0
#
# A fuzz target is a file fuzz_<thing>.c with fuzz_one and FUZZ_GOALS (fuzz.h) and a folder corpus/<thing>. To add one,
# put it in the list, write its SOURCES line, and name the files that it is for in readers. In an ordinary build it
# replays its corpus in make check; with --enable-fuzzing it is a libFuzzer program, to be run on a corpus of its own;
# with --enable-coverage tests/fuzz/coverage measures what the corpora cover.
FUZZ_TARGETS =
FUZZ_SHARED = tests/fuzz/fuzz.c tests/fuzz/fuzz.h tests/fuzz/folder.c tests/fuzz/folder.h
if FUZZING
FUZZ_MAIN = $(FUZZ_SHARED)
else
FUZZ_MAIN = $(FUZZ_SHARED) tests/fuzz/replay.c
TESTS += $(FUZZ_TARGETS)
endif
check_PROGRAMS += $(FUZZ_TARGETS)
dist_check_SCRIPTS += tests/fuzz/coverage
EXTRA_DIST += tests/fuzz/replay.c tests/fuzz/corpus tests/fuzz/readers

FUZZ_TARGETS += tests/fuzz/fuzz_ckpt
tests_fuzz_fuzz_ckpt_SOURCES = tests/fuzz/fuzz_ckpt.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_strategy
tests_fuzz_fuzz_strategy_SOURCES = tests/fuzz/fuzz_strategy.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_rules
tests_fuzz_fuzz_rules_SOURCES = tests/fuzz/fuzz_rules.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_options
tests_fuzz_fuzz_options_SOURCES = tests/fuzz/fuzz_options.c $(FUZZ_MAIN) \
	src/mount/mount_options.c

FUZZ_STRATEGIES = tests/fuzz/strategies.c tests/fuzz/strategies.h

FUZZ_TARGETS += tests/fuzz/fuzz_layout_rules
tests_fuzz_fuzz_layout_rules_SOURCES = tests/fuzz/fuzz_layout_rules.c $(FUZZ_STRATEGIES) $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_output_map
tests_fuzz_fuzz_output_map_SOURCES = tests/fuzz/fuzz_output_map.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_gguf
tests_fuzz_fuzz_gguf_SOURCES = tests/fuzz/fuzz_gguf.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_safetensors
tests_fuzz_fuzz_safetensors_SOURCES = tests/fuzz/fuzz_safetensors.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_mindformers
tests_fuzz_fuzz_mindformers_SOURCES = tests/fuzz/fuzz_mindformers.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_hyper_parallel
tests_fuzz_fuzz_hyper_parallel_SOURCES = tests/fuzz/fuzz_hyper_parallel.c tests/fuzz/pickle_mutate.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_shards
tests_fuzz_fuzz_shards_SOURCES = tests/fuzz/chunks.h tests/fuzz/fuzz_shards.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_scan
tests_fuzz_fuzz_scan_SOURCES = tests/fuzz/fuzz_scan.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_source
tests_fuzz_fuzz_source_SOURCES = tests/fuzz/fuzz_source.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_cipher
tests_fuzz_fuzz_cipher_SOURCES = tests/fuzz/fuzz_cipher.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_zip
tests_fuzz_fuzz_zip_SOURCES = tests/fuzz/fuzz_zip.c $(FUZZ_MAIN)

FUZZ_PICKLES = tests/fuzz/pickle_mutate.c tests/fuzz/wrap.c tests/fuzz/wrap.h

FUZZ_TARGETS += tests/fuzz/fuzz_torch
tests_fuzz_fuzz_torch_SOURCES = tests/fuzz/fuzz_torch.c $(FUZZ_PICKLES) $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_fsdp
tests_fuzz_fuzz_fsdp_SOURCES = tests/fuzz/chunks.h tests/fuzz/fuzz_fsdp.c $(FUZZ_PICKLES) $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_zero
tests_fuzz_fuzz_zero_SOURCES = tests/fuzz/chunks.h tests/fuzz/fuzz_zero.c $(FUZZ_PICKLES) $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_dcp
tests_fuzz_fuzz_dcp_SOURCES = tests/fuzz/fuzz_dcp.c tests/fuzz/pickle_mutate.c $(FUZZ_MAIN)

if HAVE_HFAI
FUZZ_TARGETS += tests/fuzz/fuzz_hfai
tests_fuzz_fuzz_hfai_SOURCES = tests/fuzz/chunks.h tests/fuzz/fuzz_hfai.c $(FUZZ_PICKLES) $(FUZZ_MAIN)
else
EXTRA_DIST += tests/fuzz/fuzz_hfai.c
endif

FUZZ_TARGETS += tests/fuzz/fuzz_kept
tests_fuzz_fuzz_kept_SOURCES = tests/fuzz/fuzz_kept.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_manifest
tests_fuzz_fuzz_manifest_SOURCES = tests/fuzz/fuzz_manifest.c $(FUZZ_MAIN)
tests_fuzz_fuzz_manifest_LDADD = librfstool.la $(FUZZ_LIBS)

FUZZ_TARGETS += tests/fuzz/fuzz_sums
tests_fuzz_fuzz_sums_SOURCES = tests/fuzz/fuzz_sums.c $(FUZZ_MAIN)
tests_fuzz_fuzz_sums_LDADD = librfstool.la $(FUZZ_LIBS)

FUZZ_TARGETS += tests/fuzz/fuzz_config
tests_fuzz_fuzz_config_SOURCES = tests/fuzz/fuzz_config.c $(FUZZ_MAIN) \
	src/mount/mount_options.c

FUZZ_TARGETS += tests/fuzz/fuzz_weight_map
tests_fuzz_fuzz_weight_map_SOURCES = tests/fuzz/fuzz_weight_map.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_merge
tests_fuzz_fuzz_merge_SOURCES = tests/fuzz/fuzz_merge.c $(FUZZ_STRATEGIES) $(FUZZ_MAIN)

FUZZ_WALK = tests/fuzz/forge.c tests/fuzz/forge.h tests/fuzz/walk.c tests/fuzz/walk.h tests/support/loads.c tests/support/loads.h

FUZZ_TREE = tests/fuzz/forge_tree.c tests/fuzz/forge_tree.h $(FUZZ_WALK)

FUZZ_TARGETS += tests/fuzz/fuzz_tree
tests_fuzz_fuzz_tree_SOURCES = tests/fuzz/fuzz_tree.c $(FUZZ_TREE) $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_load
tests_fuzz_fuzz_load_SOURCES = tests/fuzz/fuzz_load.c $(FUZZ_TREE) $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_sizes
tests_fuzz_fuzz_sizes_SOURCES = tests/fuzz/fuzz_sizes.c $(FUZZ_WALK) $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_targets
tests_fuzz_fuzz_targets_SOURCES = tests/fuzz/fuzz_targets.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_quant
tests_fuzz_fuzz_quant_SOURCES = tests/fuzz/fuzz_quant.c $(FUZZ_WALK) $(FUZZ_MAIN)

if HAVE_CMOCKA
FUZZ_TARGETS += tests/fuzz/fuzz_packed
tests_fuzz_fuzz_packed_SOURCES = tests/fuzz/fuzz_packed.c tests/support/dcp_file.c tests/support/dcp_file.h \
	tests/support/tree.c tests/support/tree.h $(FUZZ_MAIN)
tests_fuzz_fuzz_packed_LDADD = librfs.la $(CMOCKA_LIBS) $(ZSTD_LIBS) $(FUZZ_LIBS)
else
EXTRA_DIST += tests/fuzz/fuzz_packed.c
endif

if HAVE_CURL
FUZZ_TARGETS += tests/fuzz/fuzz_listing
tests_fuzz_fuzz_listing_SOURCES = tests/fuzz/fuzz_listing.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_remote
tests_fuzz_fuzz_remote_SOURCES = tests/fuzz/fake_curl.c tests/fuzz/fake_curl.h tests/fuzz/fuzz_remote.c $(FUZZ_MAIN)
else
EXTRA_DIST += tests/fuzz/fake_curl.c tests/fuzz/fake_curl.h tests/fuzz/fuzz_listing.c tests/fuzz/fuzz_remote.c
endif
