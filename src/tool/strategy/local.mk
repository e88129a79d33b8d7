# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/strategy/check.c \
	src/tool/strategy/convert.c \
	src/tool/strategy/make.c \
	src/tool/strategy/show.c \
	src/tool/strategy/strategy.c src/tool/strategy/strategy.h
