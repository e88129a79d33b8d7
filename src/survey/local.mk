# SPDX-License-Identifier: Apache-2.0
# What the tool alone asks of a checkpoint. Neither libreshard nor the mount links it; tests/binaries looks.
noinst_LTLIBRARIES += librfssurvey.la
librfssurvey_la_LIBADD = librfs.la -lm
librfssurvey_la_SOURCES = \
	src/survey/comparison.c \
	src/survey/comparison.h \
	src/survey/explained.c \
	src/survey/explained.h \
	src/survey/explained_bytes.c \
	src/survey/findings.c \
	src/survey/findings.h \
	src/survey/fit.c \
	src/survey/fit.h \
	src/survey/inspect_file.c \
	src/survey/inspect_file.h \
	src/survey/made_strategy.c \
	src/survey/made_strategy.h \
	src/survey/moments.c \
	src/survey/moments.h \
	src/survey/needed_ranks.c \
	src/survey/needed_ranks.h \
	src/survey/numbers.c \
	src/survey/numbers.h \
	src/survey/origins.c \
	src/survey/origins.h \
	src/survey/rank_headers.c \
	src/survey/rank_headers.h \
	src/survey/rules_report.c \
	src/survey/rules_report.h \
	src/survey/sweep.c \
	src/survey/sweep.h \
	src/survey/tensor_file.c \
	src/survey/tensor_file.h \
	src/survey/verify.h \
	src/survey/verify_files.c \
	src/survey/verify_tensors.c \
	src/survey/whole_tensors.c \
	src/survey/whole_tensors.h
