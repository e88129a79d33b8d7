# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += src/store/remote/remote.h
if HAVE_CURL
librfs_la_SOURCES += \
	src/store/remote/blocks.c src/store/remote/blocks.h \
	src/store/remote/chain.c src/store/remote/chain.h \
	src/store/remote/credentials.c src/store/remote/credentials.h \
	src/store/remote/http.c src/store/remote/http.h \
	src/store/remote/judge.c src/store/remote/judge.h \
	src/store/remote/jumps.c src/store/remote/jumps.h \
	src/store/remote/known.c src/store/remote/known.h \
	src/store/remote/listing.c src/store/remote/listing.h \
	src/store/remote/make.c src/store/remote/make.h \
	src/store/remote/markup.c src/store/remote/markup.h \
	src/store/remote/metadata.c src/store/remote/metadata.h \
	src/store/remote/object.c src/store/remote/object.h \
	src/store/remote/place.c src/store/remote/place.h \
	src/store/remote/remote.c src/store/remote/request.h \
	src/store/remote/settings.c src/store/remote/settings.h \
	src/store/remote/sign.c src/store/remote/sign.h
else
librfs_la_SOURCES += src/store/remote/none.c
endif
