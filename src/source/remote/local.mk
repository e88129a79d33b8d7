# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += src/source/remote/remote.h
if HAVE_CURL
librfs_la_SOURCES += \
	src/source/remote/blocks.c src/source/remote/blocks.h \
	src/source/remote/chain.c src/source/remote/chain.h \
	src/source/remote/credentials.c src/source/remote/credentials.h \
	src/source/remote/http.c src/source/remote/http.h \
	src/source/remote/judge.c src/source/remote/judge.h \
	src/source/remote/jumps.c src/source/remote/jumps.h \
	src/source/remote/known.c src/source/remote/known.h \
	src/source/remote/listing.c src/source/remote/listing.h \
	src/source/remote/make.c src/source/remote/make.h \
	src/source/remote/markup.c src/source/remote/markup.h \
	src/source/remote/metadata.c src/source/remote/metadata.h \
	src/source/remote/object.c src/source/remote/object.h \
	src/source/remote/place.c src/source/remote/place.h \
	src/source/remote/remote.c src/source/remote/request.h \
	src/source/remote/settings.c src/source/remote/settings.h \
	src/source/remote/sign.c src/source/remote/sign.h
else
librfs_la_SOURCES += src/source/remote/none.c
endif
