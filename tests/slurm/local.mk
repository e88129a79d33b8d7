# SPDX-License-Identifier: Apache-2.0
#
# Not in make check: it starts a Slurm.
EXTRA_DIST += tests/slurm
