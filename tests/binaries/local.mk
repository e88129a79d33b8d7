# SPDX-License-Identifier: Apache-2.0
TESTS += tests/binaries/run
dist_check_SCRIPTS += tests/binaries/run
# Builds everything twice: a part of scripts/test --long.
EXTRA_DIST += tests/binaries/twice
