# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/formats/torch/pickle.c \
	src/formats/torch/pickle.h \
	src/formats/torch/torch.c \
	src/formats/torch/torch.h \
	src/formats/torch/zip.c \
	src/formats/torch/zip.h
