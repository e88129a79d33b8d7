# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/formats/torch/arguments.c \
	src/formats/torch/arguments.h \
	src/formats/torch/document.c \
	src/formats/torch/document.h \
	src/formats/torch/pickle.c \
	src/formats/torch/pickle.h \
	src/formats/torch/pickler.c \
	src/formats/torch/pickler.h \
	src/formats/torch/torch.c \
	src/formats/torch/torch.h \
	src/formats/torch/torch_encode.c \
	src/formats/torch/torch_encode.h \
	src/formats/torch/torch_list.c \
	src/formats/torch/unpickler.c \
	src/formats/torch/unpickler.h \
	src/formats/torch/zip.c \
	src/formats/torch/zip.h
