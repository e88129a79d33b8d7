# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/plan/alike.c \
	src/plan/by_rules.c \
	src/plan/by_rules.h \
	src/plan/chunked.c \
	src/plan/geometry.c \
	src/plan/geometry.h \
	src/plan/internal.h \
	src/plan/meta_llama.c \
	src/plan/meta_llama.h \
	src/plan/names.c \
	src/plan/names.h \
	src/plan/needed.c \
	src/plan/needed.h \
	src/plan/notes.c \
	src/plan/notes.h \
	src/plan/params.c \
	src/plan/pieces.c \
	src/plan/pieces.h \
	src/plan/planner.c \
	src/plan/planner.h \
	src/plan/replicas.c \
	src/plan/replicas.h \
	src/plan/role.c \
	src/plan/role.h \
	src/plan/sample.c \
	src/plan/sample.h \
	src/plan/sibling.c \
	src/plan/slice.c \
	src/plan/slice.h \
	src/plan/sources.c \
	src/plan/strategies.c \
	src/plan/strategy_files.c \
	src/plan/strategy_files.h \
	src/plan/trace.c \
	src/plan/trace.h \
	src/plan/unproved.c
