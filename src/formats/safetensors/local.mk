# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/formats/safetensors/layers.c \
	src/formats/safetensors/peft.c \
	src/formats/safetensors/peft.h \
	src/formats/safetensors/safetensors.c \
	src/formats/safetensors/safetensors.h \
	src/formats/safetensors/safetensors_encode.c \
	src/formats/safetensors/weight_map.c
