# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/assemble/ahead.c src/assemble/ahead.h \
	src/assemble/assembler.c src/assemble/assembler.h \
	src/assemble/cache.c src/assemble/cache.h src/assemble/cache_internal.h \
	src/assemble/cache_memory.c src/assemble/cache_policy.c src/assemble/cache_table.c \
	src/assemble/convert.c src/assemble/convert.h \
	src/assemble/convert_x86.c src/assemble/convert_x86.h \
	src/assemble/converted.c \
	src/assemble/fetch.c \
	src/assemble/gather.c src/assemble/gather.h \
	src/assemble/band.c src/assemble/band.h src/assemble/band_fill.c \
	src/assemble/transpose.c src/assemble/transpose.h \
	src/assemble/gather_job.h src/assemble/gather_strided.c \
	src/assemble/internal.h \
	src/assemble/kernels.c src/assemble/kernels.h \
	src/assemble/kernels_x86.c src/assemble/kernels_x86.h \
	src/assemble/latency.c src/assemble/latency.h \
	src/assemble/place.h \
	src/assemble/shape.c src/assemble/shape.h \
	src/assemble/slots.c src/assemble/slots.h \
	src/assemble/prefetch.c src/assemble/prefetch.h src/assemble/prefetch_internal.h \
	src/assemble/prefetch_read.c \
	src/assemble/prefetch_plan.c src/assemble/prefetch_plan.h
