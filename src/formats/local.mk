# SPDX-License-Identifier: Apache-2.0
# The files that the formats share; each format has a folder.
librfs_la_SOURCES += \
	src/formats/beside.h \
	src/formats/dtype.c \
	src/formats/dtype.h \
	src/formats/foreign.c \
	src/formats/foreign.h \
	src/formats/formats.c \
	src/formats/formats.h \
	src/formats/image.c \
	src/formats/image.h \
	src/formats/index.c \
	src/formats/index.h \
	src/formats/numbered.c \
	src/formats/numbered.h \
	src/formats/seen.c \
	src/formats/seen.h \
	src/formats/storages.c \
	src/formats/storages.h \
	src/formats/walker.h \
	src/formats/words.c \
	src/formats/words.h

include src/formats/chunks/local.mk
include src/formats/ckpt/local.mk
include src/formats/dcp/local.mk
include src/formats/fsdp/local.mk
include src/formats/gguf/local.mk
include src/formats/hfai/local.mk
include src/formats/hyper_parallel/local.mk
include src/formats/mindformers/local.mk
include src/formats/npy/local.mk
include src/formats/safetensors/local.mk
include src/formats/shards/local.mk
include src/formats/torch/local.mk
include src/formats/zero/local.mk
