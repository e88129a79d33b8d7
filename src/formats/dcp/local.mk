# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/formats/dcp/dcp.c \
	src/formats/dcp/dcp.h \
	src/formats/dcp/dcp_encode.c \
	src/formats/dcp/dcp_encode.h \
	src/formats/dcp/dcp_metadata.c \
	src/formats/dcp/dcp_pickle.c \
	src/formats/dcp/dcp_pickle.h \
	src/formats/dcp/dcp_seen.c
