# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/rules/compile.c \
	src/rules/compile.h \
	src/rules/compile_internal.h \
	src/rules/cuts.c \
	src/rules/cuts.h \
	src/rules/failures.c \
	src/rules/hf_config.c \
	src/rules/hf_config.h \
	src/rules/known.c \
	src/rules/known.h \
	src/rules/links.c \
	src/rules/links.h \
	src/rules/parse.c \
	src/rules/rule.c \
	src/rules/rules.h \
	src/rules/shipped.h \
	src/rules/sides.c \
	src/rules/statements.h \
	src/rules/values.c
