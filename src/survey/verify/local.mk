# SPDX-License-Identifier: Apache-2.0
librfssurvey_la_SOURCES += \
	src/survey/verify/findings.c \
	src/survey/verify/findings.h \
	src/survey/verify/verify.h \
	src/survey/verify/verify_files.c \
	src/survey/verify/verify_tensors.c
