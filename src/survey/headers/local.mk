# SPDX-License-Identifier: Apache-2.0
librfssurvey_la_SOURCES += \
	src/survey/headers/fit.c \
	src/survey/headers/fit.h \
	src/survey/headers/inspect_file.c \
	src/survey/headers/inspect_file.h \
	src/survey/headers/made_strategy.c \
	src/survey/headers/made_strategy.h \
	src/survey/headers/needed_ranks.c \
	src/survey/headers/needed_ranks.h \
	src/survey/headers/rank_headers.c \
	src/survey/headers/rank_headers.h
