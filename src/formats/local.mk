# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/formats/chunks/build.c \
	src/formats/chunks/chunks.h \
	src/formats/chunks/dcp.c \
	src/formats/chunks/dcp.h \
	src/formats/chunks/dcp_metadata.c \
	src/formats/chunks/dcp_metadata.h \
	src/formats/chunks/fsdp.c \
	src/formats/chunks/fsdp.h \
	src/formats/chunks/headers.c \
	src/formats/chunks/headers.h \
	src/formats/chunks/internal.h \
	src/formats/chunks/mindformers.c \
	src/formats/chunks/mindformers.h \
	src/formats/chunks/shards.c \
	src/formats/chunks/shards.h \
	src/formats/chunks/walk.c \
	src/formats/ckpt/ckpt.c \
	src/formats/ckpt/ckpt.h \
	src/formats/ckpt/crc.c \
	src/formats/ckpt/crc.h \
	src/formats/dtype.c \
	src/formats/dtype.h \
	src/formats/index.c \
	src/formats/index.h \
	src/formats/numbered.c \
	src/formats/numbered.h \
	src/formats/safetensors/safetensors.c \
	src/formats/safetensors/safetensors.h \
	src/formats/torch/pickle.c \
	src/formats/torch/pickle.h \
	src/formats/torch/torch.c \
	src/formats/torch/torch.h \
	src/formats/torch/zip.c \
	src/formats/torch/zip.h \
	src/formats/walker.h
