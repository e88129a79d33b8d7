# SPDX-License-Identifier: Apache-2.0
#
# A fuzz target is a file fuzz_<thing>.c with LLVMFuzzerTestOneInput and a folder corpus/<thing>. To add
# one, put it in the list and write its SOURCES line. In an ordinary build it replays its corpus in
# make check; with --enable-fuzzing it is a libFuzzer program, to be run on a corpus of its own.
FUZZ_TARGETS =
if FUZZING
FUZZ_MAIN =
else
FUZZ_MAIN = tests/fuzz/replay.c
TESTS += $(FUZZ_TARGETS)
endif
check_PROGRAMS += $(FUZZ_TARGETS)
EXTRA_DIST += tests/fuzz/replay.c tests/fuzz/corpus

FUZZ_TARGETS += tests/fuzz/fuzz_ckpt
tests_fuzz_fuzz_ckpt_SOURCES = tests/fuzz/fuzz_ckpt.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_strategy
tests_fuzz_fuzz_strategy_SOURCES = tests/fuzz/fuzz_strategy.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_options
tests_fuzz_fuzz_options_SOURCES = tests/fuzz/fuzz_options.c $(FUZZ_MAIN) \
	src/mount/known.c src/mount/options.c src/mount/paths.c src/mount/settings.c src/mount/settings_json.c

FUZZ_TARGETS += tests/fuzz/fuzz_rules
tests_fuzz_fuzz_rules_SOURCES = tests/fuzz/fuzz_rules.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_outward
tests_fuzz_fuzz_outward_SOURCES = tests/fuzz/fuzz_outward.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_safetensors
tests_fuzz_fuzz_safetensors_SOURCES = tests/fuzz/fuzz_safetensors.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_scan
tests_fuzz_fuzz_scan_SOURCES = tests/fuzz/fuzz_scan.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_cipher
tests_fuzz_fuzz_cipher_SOURCES = tests/fuzz/fuzz_cipher.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_zip
tests_fuzz_fuzz_zip_SOURCES = tests/fuzz/fuzz_zip.c $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_torch
tests_fuzz_fuzz_torch_SOURCES = tests/fuzz/fuzz_torch.c tests/fuzz/wrap.c tests/fuzz/wrap.h $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_hfai
tests_fuzz_fuzz_hfai_SOURCES = tests/fuzz/fuzz_hfai.c tests/fuzz/wrap.c tests/fuzz/wrap.h $(FUZZ_MAIN)

FUZZ_TARGETS += tests/fuzz/fuzz_saved
tests_fuzz_fuzz_saved_SOURCES = tests/fuzz/fuzz_saved.c $(FUZZ_MAIN)
