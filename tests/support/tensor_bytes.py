# SPDX-License-Identifier: Apache-2.0
"""The bytes of tensors of torch."""
import torch


def byte_view(tensor):
    """
    The bytes of a tensor with elements, row by row. torch takes a tensor of one element for contiguous whatever its
    stride is, and then shows no bytes of it: so it is copied.
    """
    return tensor.detach().reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8)


def bits(tensor):
    """The bytes of a tensor: NaN compare like the others."""
    return byte_view(tensor).numpy().tobytes() if tensor.numel() else b""
