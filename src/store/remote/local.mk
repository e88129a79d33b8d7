# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += src/store/remote/remote.h
if HAVE_CURL
librfs_la_SOURCES += \
	src/store/remote/account.h \
	src/store/remote/bucket.c src/store/remote/bucket.h \
	src/store/remote/credentials.c src/store/remote/credentials.h \
	src/store/remote/environment.c src/store/remote/environment.h \
	src/store/remote/http.c src/store/remote/http.h \
	src/store/remote/hub.c src/store/remote/hub.h \
	src/store/remote/listing.c src/store/remote/listing.h \
	src/store/remote/markup.c src/store/remote/markup.h \
	src/store/remote/directory.c src/store/remote/directory.h \
	src/store/remote/object.c src/store/remote/object.h \
	src/store/remote/remote.c \
	src/store/remote/retries.c src/store/remote/retries.h \
	src/store/remote/sign.c src/store/remote/sign.h \
	src/store/remote/upload.c src/store/remote/upload.h
else
librfs_la_SOURCES += src/store/remote/without_curl.c
endif
