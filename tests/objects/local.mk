# SPDX-License-Identifier: Apache-2.0
#
# Not in make check: these need moto, and nginx for a part. scripts/test runs them by themselves.
check_PROGRAMS += tests/objects/views
tests_objects_views_SOURCES = tests/objects/views.c
tests_objects_views_LDADD = librfs.la

EXTRA_DIST += \
	tests/objects/bucket.py \
	tests/objects/hub.py \
	tests/objects/proxy.py \
	tests/objects/run \
	tests/objects/stores.py \
	tests/objects/test_content.py \
	tests/objects/test_counts.py \
	tests/objects/test_credentials.py \
	tests/objects/test_faults.py \
	tests/objects/test_followed.py \
	tests/objects/test_hub.py \
	tests/objects/test_long.py \
	tests/objects/test_origins.py \
	tests/objects/test_secrets.py \
	tests/objects/test_tls.py \
	tests/objects/test_upload.py \
	tests/objects/test_views.py
