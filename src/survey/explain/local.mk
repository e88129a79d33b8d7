# SPDX-License-Identifier: Apache-2.0
librfssurvey_la_SOURCES += \
	src/survey/explain/explained.c \
	src/survey/explain/explained.h \
	src/survey/explain/explained_bytes.c
