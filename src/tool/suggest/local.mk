# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += src/tool/suggest/attempt.c src/tool/suggest/internal.h src/tool/suggest/model.c
librfstool_la_SOURCES += src/tool/suggest/near.c src/tool/suggest/near.h src/tool/suggest/suggest_command.c
