# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/source/access.c src/source/access.h \
	src/source/beneath.c src/source/beneath.h \
	src/source/blocks.c src/source/blocks.h \
	src/source/build.c src/source/build.h \
	src/source/catalog.c src/source/catalog.h src/source/catalog_internal.h \
	src/source/catalog_room.c \
	src/source/catalog_saved.c \
	src/source/cipher.c src/source/cipher.h src/source/cipher_evp.c \
	src/source/ckpt.c src/source/ckpt.h \
	src/source/ckpt_match.c \
	src/source/ckpt_value.c src/source/ckpt_value.h \
	src/source/content.c \
	src/source/crc.c src/source/crc.h \
	src/source/dtype.c src/source/dtype.h \
	src/source/fds.c src/source/fds.h \
	src/source/files.c src/source/files.h \
	src/source/home.c src/source/home.h \
	src/source/index.c src/source/index.h \
	src/source/group_proto.c src/source/group_proto.h \
	src/source/json_map.c src/source/json_map.h \
	src/source/key.c src/source/key.h \
	src/source/merge.c src/source/merge.h \
	src/source/places.c src/source/places.h \
	src/source/read_whole.c \
	src/source/safetensors.c src/source/safetensors.h \
	src/source/scan.c src/source/scan.h src/source/scan_internal.h \
	src/source/scan_folder.c \
	src/source/scan_group.c \
	src/source/scan_map.c \
	src/source/scan_name.c \
	src/source/scan_tree.c \
	src/source/scan_whole.c \
	src/source/saved.c src/source/saved.h \
	src/source/saved_body.c \
	src/source/saved_bytes.c src/source/saved_bytes.h \
	src/source/saved_index.c src/source/saved_index.h \
	src/source/saved_store.c \
	src/source/sealed.c src/source/sealed.h \
	src/source/spec.h \
	src/source/part_map.c src/source/part_map.h \
	src/source/wire.c src/source/wire.h \
	src/source/pickle.c src/source/pickle.h \
	src/source/pickle_internal.h \
	src/source/pickle_make.c \
	src/source/pickle_names.c \
	src/source/pickle_node.c \
	src/source/scan_parts.c \
	src/source/torch.c src/source/torch.h \
	src/source/torch_check.c \
	src/source/torch_tensor.c \
	src/source/torch_index.c src/source/torch_index.h \
	src/source/zip.c src/source/zip.h
