# SPDX-License-Identifier: Apache-2.0
# What the tool alone asks of a checkpoint. Neither libreshard nor the mount links it; tests/binaries looks.
noinst_LTLIBRARIES += librfssurvey.la
librfssurvey_la_LIBADD = librfs.la -lm
librfssurvey_la_SOURCES = \
	src/survey/comparison.c \
	src/survey/comparison.h \
	src/survey/draft.c \
	src/survey/draft.h \
	src/survey/moments.c \
	src/survey/moments.h \
	src/survey/numbers.c \
	src/survey/numbers.h \
	src/survey/origins.c \
	src/survey/origins.h \
	src/survey/rules_report.c \
	src/survey/rules_report.h \
	src/survey/sweep.c \
	src/survey/sweep.h \
	src/survey/tensor_file.c \
	src/survey/tensor_file.h \
	src/survey/whole_tensors.c \
	src/survey/whole_tensors.h

include src/survey/explain/local.mk
include src/survey/headers/local.mk
include src/survey/verify/local.mk
