# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/plan/attributes.c \
	src/plan/boxed.c \
	src/plan/boxed_copies.c \
	src/plan/boxed.h \
	src/plan/converted.c \
	src/plan/converted.h \
	src/plan/copies.c \
	src/plan/copies.h \
	src/plan/dtype_rules.c \
	src/plan/dtype_rules.h \
	src/plan/geometries.c \
	src/plan/geometry.c \
	src/plan/geometry.h \
	src/plan/internal.h \
	src/plan/lacking.c \
	src/plan/lost.c \
	src/plan/match.c \
	src/plan/names.c \
	src/plan/needed.c \
	src/plan/output_map.c \
	src/plan/output_map.h \
	src/plan/params.c \
	src/plan/planner.c \
	src/plan/planner.h \
	src/plan/presence.c \
	src/plan/presence.h \
	src/plan/probe.c \
	src/plan/providers.c \
	src/plan/replicas.c \
	src/plan/report.c \
	src/plan/role.c src/plan/role.h \
	src/plan/strategies.c \
	src/plan/rows.c \
	src/plan/shapes.c \
	src/plan/sizes.c \
	src/plan/slice.c \
	src/plan/slice.h \
	src/plan/sources.c \
	src/plan/stored.c \
	src/plan/stored.h \
	src/plan/trace.c \
	src/plan/trace.h \
	src/plan/unproved.c
