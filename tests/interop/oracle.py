# SPDX-License-Identifier: Apache-2.0
"""The real transform_checkpoints, and where it is known to refuse or to be wrong.

doc/MINDSPORE.md lists the same cases for users; reasons() names the ones that apply to a case. A
disagreement between MindSpore and the model without such a reason is a fault of this generator.
"""
import contextlib
import math
import os
import shutil
import sys

from model import by_stage


def quiet():
    """To be called before mindspore is imported."""
    os.environ.setdefault("GLOG_v", "4")
    os.environ.setdefault("VLOG_v", "0")


def ignore_free_memory():
    """load_checkpoint refuses files larger than the free pages, not counting what the page cache would
    give back; how full that is has nothing to do with these tests. Nothing else of MindSpore is touched."""
    from mindspore.train import serialization
    serialization._get_available_memory = lambda: None


@contextlib.contextmanager
def silence():
    """No bars of progress, and no tracebacks of the other processes in which MindSpore does some work."""
    streams = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.flush()
    kept = os.dup(1), os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    try:
        yield
    finally:
        for stream in streams:
            stream.flush()
        for fd, was in zip((1, 2), kept):
            os.dup2(was, fd)
            os.close(was)
        os.close(null)


def transform(src_dir, out_dir, src_file, dst_file, prefix):
    """{relative path: path} of what MindSpore wrote, or the exception that it raised."""
    import mindspore as ms
    try:
        with silence():
            ms.transform_checkpoints(src_dir, out_dir, prefix, src_file, dst_file)
    except Exception as e:  # noqa: BLE001 - whatever it raises is what we want to know
        shutil.rmtree(out_dir, ignore_errors=True)
        return e
    found = {}
    for folder, _, names in os.walk(out_dir):
        for name in names:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, out_dir)] = path
    return found


def opt_out_of_order(layout, form):
    """One repeated axis, the leftmost, an optimizer shard, tensor axes not in device order."""
    nested = layout.nested and form != "json"  # JSON has no nesting, so it goes the plain way
    if not layout.opt or nested or layout.free_axes() != [0]:
        return False
    used = [d for a in layout.axes for d in a if layout.extent(d) > 1]
    return used != sorted(used, reverse=True)


def common(src, dst):
    """(source item, target item) of the parameters in both."""
    return [(s, d) for s in src.items for d in dst.items if s.name == d.name] if src and dst else []


def strides(layout):
    return {math.prod(layout.dev[k:]) for k in range(len(layout.dev))}


def no_common_factors(src, dst):
    """Device matrices like [4,3] and [3,4]: they are cut into common factors by way of a shape."""
    chain = sorted(strides(src) | strides(dst))
    return any(b % a for a, b in zip(chain, chain[1:]))


def stage_apart(src, dst):
    """A stage of the target none of whose parameters the source strategy has."""
    if not src or not dst:
        return False
    met = {d.stage for _, d in common(src, dst)}
    return met != set(range(dst.stages))


def differing_stages(strategy):
    if not strategy:
        return False
    for name in strategy.names():
        layouts = [i.layout for i in strategy.items if i.name == name]
        if any(a != layouts[0] for a in layouts):
            return True
    return False


def safetensors_reasons(src, dst, dtypes):
    """The same of what goes another way for sources in safetensors."""
    out, wrong = [], []
    if "BFloat16" in dtypes:
        out.append("bfloat16 in safetensors on this numpy")
    if "Float8E4M3FN" in dtypes or "Float8E5M2" in dtypes:
        out.append("float8 in safetensors")
    if src and src.stages > 1 and (not dst or dst.stages == 1):
        wrong.append("the results of several source stages joined in any order")
        if src.form == "json":
            out.append("several source stages in JSON")
    if dst and dst.stages > 1:
        wrong.append("parameters of several target stages in any order, or in one of them only")
    return out, wrong


def reasons(src, dst, files, source_format="ckpt"):
    """Why MindSpore may refuse this case, and why it may give wrong values: two lists of reasons."""
    out = []
    src_n, dst_n = (s.devices if s else 1 for s in (src, dst))
    part = source_format == "ckpt" and by_stage(src, dst)
    first = src.first_stage * src_n if part else 0
    if not src and not dst:
        out.append("no strategy on either side")
    if max(src_n, dst_n) % min(src_n, dst_n):
        out.append("device counts of which neither divides the other")
    dtypes = {v.dtype for values in files.values() for _, v in values}
    if dtypes & {"str", "map", "Complex64", "Complex128"}:
        out.append("string, map or complex values")
    if any(s and s.nested_json() for s in (src, dst)):
        out.append("nested layouts in JSON")
    if src and {first + r for r in range(src.ranks)} - set(files):
        out.append("missing rank")
    if dst and dst.stages > 1 and dst_n == 1:
        out.append("target stages of one device")
    if stage_apart(src, dst):
        out.append("a target stage that shares no parameter with the source")
    if any(not s.layout.axes and no_common_factors(s.layout, d.layout) for s, d in common(src, dst)):
        out.append("a sharded scalar, device matrices without common factors")
    wrong = []
    if any(s and any(opt_out_of_order(i.layout, s.form) for i in s.items) for s in (src, dst)):
        wrong.append("optimizer shard over the leftmost axis, tensor axes out of device order")
    if differing_stages(src) or differing_stages(dst):
        wrong.append("a parameter in several stages with differing layouts")
    if nan_count(files):
        wrong.append("bfloat16 NaN payloads")
    if "Int4" in dtypes:
        wrong.append("Int4 becomes Int8")
    if source_format == "safetensors":
        more = safetensors_reasons(src, dst, dtypes)
        return out + more[0], wrong + more[1]
    return out, wrong


def nan_count(files):
    """bfloat16 NaNs, whose payloads MindSpore rewrites."""
    total = 0
    for values in files.values():
        for _, v in values:
            if v.dtype == "BFloat16":
                total += int(((v.data & 0x7FFF) > 0x7F80).sum())
    return total
