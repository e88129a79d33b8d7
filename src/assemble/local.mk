# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/assemble/assembler.c src/assemble/assembler.h \
	src/assemble/band.c src/assemble/band.h \
	src/assemble/cache.c src/assemble/cache.h \
	src/assemble/cast.c src/assemble/cast.h \
	src/assemble/cast_loops.h src/assemble/cast_neon.c src/assemble/cast_x86.c src/assemble/cast_vectors.h \
	src/assemble/computed.c src/assemble/computed.h \
	src/assemble/distance.h \
	src/assemble/gather.c src/assemble/gather.h \
	src/assemble/internal.h \
	src/assemble/kernels.c src/assemble/kernels.h \
	src/assemble/kernels_neon.c src/assemble/kernels_x86.c src/assemble/kernels_vectors.h \
	src/assemble/prefetch.c src/assemble/prefetch.h \
	src/assemble/sequential.c src/assemble/sequential.h \
	src/assemble/shape.c src/assemble/shape.h \
	src/assemble/transpose.c src/assemble/transpose.h
