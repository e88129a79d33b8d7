# SPDX-License-Identifier: Apache-2.0
# Everything but main(), which the tests of this room link as well. Each command has a folder and a local.mk.
noinst_LTLIBRARIES += librfstool.la
librfstool_la_LIBADD = librfssurvey.la -lm
librfstool_la_SOURCES = \
	src/tool/common/args.c src/tool/common/args.h \
	src/tool/common/command.h \
	src/tool/common/manifest.c src/tool/common/manifest.h \
	src/tool/common/output.c src/tool/common/output.h \
	src/tool/common/show.c src/tool/common/show.h \
	src/tool/common/source.c src/tool/common/source.h \
	src/tool/common/tool.c src/tool/common/tool.h

include src/tool/convert/local.mk
include src/tool/diff/local.mk
include src/tool/example/local.mk
include src/tool/explain/local.mk
include src/tool/export/local.mk
include src/tool/get/local.mk
include src/tool/info/local.mk
include src/tool/mounts/local.mk
include src/tool/ranks/local.mk
include src/tool/stats/local.mk
include src/tool/suggest/local.mk
include src/tool/verify/local.mk
include src/tool/strategy/local.mk

reshard_SOURCES = src/tool/main.c
reshard_LDADD = librfstool.la $(FUZZ_LIBS)

