# SPDX-License-Identifier: Apache-2.0
"""
Encrypts files as save_checkpoint(enc_key=…, enc_mode=…) does, by the libcrypto that is installed.

    block   = magic [tag 16, GCM alone] length 16 iv(16) n cipher(n)      numbers: little-endian, 4 bytes
    length  counts the bytes after itself
"""
import ctypes
import ctypes.util
import os
import struct

from harness import need, read_all

BLOCK = 64 << 20
MAGIC = {"AES-GCM": 0x7F3A5ED8, "AES-CBC": 0x7F3A5ED9, "SM4-CBC": 0x7F3A5EDA}
KEY = b"a key for tests, and no other: 0"
GET_TAG = 0x10  # EVP_CTRL_AEAD_GET_TAG


def library():
    name = ctypes.util.find_library("crypto")
    need(name, "there is no libcrypto")
    lib = ctypes.CDLL(name)
    for function in ("EVP_CIPHER_CTX_new", "EVP_get_cipherbyname"):
        getattr(lib, function).restype = ctypes.c_void_p
    return lib


def seal_block(lib, plain, key, mode):
    name = "sm4-cbc" if mode == "SM4-CBC" else f"aes-{len(key) * 8}-{mode[4:].lower()}"
    cipher = lib.EVP_get_cipherbyname(name.encode())
    need(cipher, f"libcrypto has no {name}")
    iv = os.urandom(16)
    context = ctypes.c_void_p(lib.EVP_CIPHER_CTX_new())
    out = ctypes.create_string_buffer(len(plain) + 16)
    n, more = ctypes.c_int(), ctypes.c_int()
    tag = ctypes.create_string_buffer(16)
    good = lib.EVP_EncryptInit_ex(context, ctypes.c_void_p(cipher), None, key, iv)
    good &= lib.EVP_EncryptUpdate(context, out, ctypes.byref(n), plain, len(plain))
    good &= lib.EVP_EncryptFinal_ex(context, ctypes.byref(out, n.value), ctypes.byref(more))
    if mode == "AES-GCM":
        good &= lib.EVP_CIPHER_CTX_ctrl(context, GET_TAG, 16, tag)
    lib.EVP_CIPHER_CTX_free(context)
    assert good == 1, "libcrypto"
    sealed = out.raw[: n.value + more.value]
    head = struct.pack("<I", MAGIC[mode]) + (tag.raw if mode == "AES-GCM" else b"")
    return head + struct.pack("<ii", 24 + len(sealed), 16) + iv + struct.pack("<i", len(sealed)) + sealed


def seal(plain, key=KEY, mode="AES-GCM"):
    lib = library()
    return b"".join(seal_block(lib, plain[at : at + BLOCK], key, mode) for at in range(0, len(plain), BLOCK))


def seal_tree(tree, key=KEY, mode="AES-GCM"):
    """Encrypts all sources of a forge.Tree in their places."""
    for rank in range(tree.src_n):
        tree.write(rank, seal(read_all(tree.path(rank)), key, mode))


def key_file(tree, key=KEY):
    path = os.path.join(tree.dir, "key")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(key + b"\n")
    return path
