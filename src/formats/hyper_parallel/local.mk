# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/formats/hyper_parallel/hyper_parallel.c \
	src/formats/hyper_parallel/hyper_parallel.h \
	src/formats/hyper_parallel/hyper_parallel_seen.c
