# SPDX-License-Identifier: Apache-2.0
TESTS += tests/golden/run
dist_check_SCRIPTS += tests/golden/run
EXTRA_DIST += tests/golden/computed.t tests/golden/dcp.t tests/golden/diff.t tests/golden/drop_source.t tests/golden/example.t tests/golden/get.t tests/golden/info.t tests/golden/layouts.t tests/golden/stats.t tests/golden/strategy.t tests/golden/suggest.t tests/golden/verify.t
EXTRA_DIST += tests/golden/explain.t tests/golden/ranks.t tests/golden/parts.t tests/golden/save_parts.py doc/images/explain.svg
