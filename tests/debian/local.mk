# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test --long: they need root and the network.
EXTRA_DIST += \
	debian/changelog debian/control debian/copyright debian/libreshard-dev.install debian/libreshard1.install \
	debian/python3-reshard.install debian/reshardfs-doc.docs debian/reshardfs.examples debian/reshardfs.install \
	debian/rules debian/source/format \
	debian/tests/control debian/tests/link-with-the-library debian/tests/mount-and-load \
	tests/debian/portable-jobs tests/debian/run tests/debian/serve.py
