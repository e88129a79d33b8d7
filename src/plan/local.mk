# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/plan/agree.c \
	src/plan/attributes.c \
	src/plan/dtype_rules.c \
	src/plan/dtype_rules.h \
	src/plan/geometries.c \
	src/plan/geometry.c \
	src/plan/geometry.h \
	src/plan/givers.c \
	src/plan/document.c \
	src/plan/document.h \
	src/plan/hfai.h \
	src/plan/hfai_internal.h \
	src/plan/hfai_read.c \
	src/plan/hfai_stock.c \
	src/plan/hfai_steps.c \
	src/plan/hfai_value.c \
	src/plan/hfai_write.c \
	src/plan/internal.h \
	src/plan/lost.c \
	src/plan/outward.c \
	src/plan/outward.h \
	src/plan/planner.c \
	src/plan/planner.h \
	src/plan/rows.c \
	src/plan/roles.c \
	src/plan/roster.c \
	src/plan/sizes.c \
	src/plan/slice.c \
	src/plan/slice.h \
	src/plan/stock.c \
	src/plan/stock.h \
	src/plan/sources.c \
	src/plan/survey.c \
	src/plan/survey.h \
	src/plan/tell.c \
	src/plan/want.c
