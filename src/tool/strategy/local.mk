# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/strategy/devices.c src/tool/strategy/devices.h \
	src/tool/strategy/strategy_command.c src/tool/strategy/strategy_command.h
