# SPDX-License-Identifier: Apache-2.0
"""Layouts and strategy files, written as MindSpore's compiler and merge_pipeline_strategys do.

A Layout keeps what the file says: the device matrix, for each tensor axis the device axes that cut
it (outer to inner, counted from the right of the matrix) and the size of the optimizer shard. What
a rank holds under it is the business of model.py.
"""
import json
import math
import os


class Layout:
    def __init__(self, dev, axes, opt=0, nested=None, step=None):
        """axes[i]: the device axes that cut tensor axis i; an int or -1 is short for a list."""
        self.dev = list(dev)
        self.axes = [[a] if isinstance(a, int) and a >= 0 else [] if a == -1 else list(a)
                     for a in axes]
        self.opt = opt
        self.nested = any(len(a) > 1 for a in self.axes) if nested is None else nested
        self.forced_step = step

    def __eq__(self, other):
        return (self.dev, self.axes, self.opt) == (other.dev, other.axes, other.opt)

    def __repr__(self):
        text = f"dev {self.dev} map {self.axes if self.nested else self.flat()}"
        return text + (f" opt {self.opt} step {self.step()}" if self.opt else "")

    def devices(self):
        return math.prod(self.dev)

    def extent(self, d):
        return self.dev[len(self.dev) - 1 - d]

    def flat(self):
        """The tensor map with nesting removed, as JSON has it."""
        return [d for a in self.axes for d in (a or [-1])]

    def free_axes(self):
        """Positions in dev of the axes longer than 1 that the tensor map does not use."""
        used = {len(self.dev) - 1 - d for a in self.axes for d in a}
        return [k for k, size in enumerate(self.dev) if k not in used and size > 1]

    def cut_pieces(self):
        """Into how many pieces the tensor map cuts each tensor axis."""
        return [math.prod(self.extent(d) for d in a) for a in self.axes]

    def opt_pieces(self):
        if self.opt == -1:
            return self.devices() // math.prod(self.cut_pieces())
        return max(self.opt, 1)

    def pieces(self):
        pieces = self.cut_pieces()
        if pieces:
            pieces[0] *= self.opt_pieces()
        return pieces

    def step(self):
        """The stride in ranks of the rightmost repeated axis; 0 without an optimizer shard."""
        if self.forced_step is not None:
            return self.forced_step
        free = self.free_axes()
        return math.prod(self.dev[free[-1] + 1:]) if self.opt and free else 0

    def expanded(self, shape):
        """The full shape with nested axes expanded, as the compiler writes it into JSON."""
        out = []
        for size, axis in zip(shape, self.axes):
            for d in axis[:-1]:
                out.append(self.extent(d))
                size //= self.extent(d)
            out.append(size)
        return out


class Item:
    """One parameter of one stage."""

    def __init__(self, name, layout, shape, stage=0):
        self.name, self.layout, self.shape, self.stage = name, layout, tuple(shape), stage


class Strategy:
    def __init__(self, items, form="ckpt", merged=None, first_stage=None):
        """form: ckpt (protobuf) or json. first_stage: what the first strategy item says."""
        self.items = list(items)
        self.form = form
        self.stages = 1 + max(i.stage for i in items)
        self.merged = self.stages > 1 if merged is None else merged
        self.first_stage = self.items[0].stage if first_stage is None else first_stage
        self.devices = self.items[0].layout.devices()
        self.ranks = self.devices * self.stages
        self.fixture = None  # a file to copy instead of writing one
        self.raw = None      # bytes to write instead
        self.parts = None    # "folder", "list" or "ranks": the stages' files, rather than one merged

    def names(self):
        return list(dict.fromkeys(i.name for i in self.items))

    def item(self, name, stage):
        return next((i for i in self.items if i.name == name and i.stage == stage), None)

    def layout(self, name, stage):
        item = self.item(name, stage)
        return item and item.layout

    def stages_of(self, name):
        return sorted(i.stage for i in self.items if i.name == name)

    def nested_json(self):
        return self.form == "json" and any(
            len(a) > 1 for i in self.items for a in i.layout.axes)

    def describe(self):
        head = f"{self.stages} stage(s) of {self.devices}, {self.form}"
        if self.first_stage:
            head += f", first item in stage {self.first_stage}"
        return head + "".join(
            f"\n    {i.stage}-{i.name} {list(i.shape)} {i.layout}" for i in self.items)

    def full_name(self, item):
        return f"{item.stage}-{item.name}" if self.merged else item.name

    def write(self, path):
        """The file that MindSpore is given; of parts, what merge_pipeline_strategys makes of them."""
        if self.parts:
            import mindspore as ms
            self.write_parts(path + ".parts")
            ms.merge_pipeline_strategys(path + ".parts", path)
            return
        if self.raw is not None:
            data = self.raw
        elif self.fixture:
            with open(self.fixture, "rb") as f:
                data = f.read()
        else:
            data = self.json_bytes() if self.form == "json" else self.proto_bytes()
        with open(path, "wb") as f:
            f.write(data)

    def given(self, path):
        """What reshardfs is given for the strategy that was written to PATH."""
        if not self.parts:
            return path
        folder = path + ".parts"
        files = sorted((os.path.join(folder, n) for n in os.listdir(folder)), reverse=True)
        return ":".join(files) if self.parts == "list" else folder

    def write_parts(self, folder):
        """A file of each stage; for "ranks" one of each rank, its parameters in an order of their own."""
        os.makedirs(folder)
        for stage in range(self.stages):
            items = [Item(i.name, i.layout, i.shape) for i in self.items if i.stage == stage]
            for k in range(min(self.devices, 3) if self.parts == "ranks" else 1):
                one = Strategy(items[k:] + items[:k], self.form, False, stage)
                one.write(os.path.join(folder, f"stage{stage}_{k}.{self.form}"))

    def proto_bytes(self):
        from mindspore.train import node_strategy_pb2 as pb
        out = pb.ParallelStrategyMap()
        out.current_stage = 1 if self.merged else 2
        stages = [self.first_stage] + [s for s in range(self.stages) if s != self.first_stage]
        for stage in stages:
            node = out.parallel_strategy_item.add()
            node.node_name = f"MatMul-op{stage}"
            node.parallel_strategys.stage = stage
            node.parallel_strategys.parallel_strategy.add().dim.extend([1, 1])
        for item in self.items:
            layout = item.layout
            entry = out.parallel_layout_item.add()
            entry.param_name = self.full_name(item)
            body = entry.parallel_layouts
            body.dev_matrix.add().dim.extend(layout.dev)
            if layout.nested:
                for axis in layout.axes:
                    body.tensor_map.add().dim.extend(axis or [-1])
                if len(layout.axes) == 1:
                    body.tensor_map.add()
            else:
                body.tensor_map.add().dim.extend(layout.flat())
            body.param_split_shape.add()
            body.indices_offset.add()
            body.field = 0
            body.opt_weight_shard_step = layout.step()
            body.opt_weight_shard_size = layout.opt
        return out.SerializeToString()

    def json_bytes(self):
        stages = [self.first_stage] + [s for s in range(self.stages) if s != self.first_stage]
        nodes = {f"MatMul-op{n}": {"parallel_strategy": [[1, 1]], "stage": s}
                 for n, s in enumerate(stages)}
        params = {}
        for item in self.items:
            layout = item.layout
            params[self.full_name(item)] = {
                "dev_matrix": layout.dev, "field": 0, "opt_weight_shard_size": layout.opt,
                "opt_weight_shard_step": layout.step(), "tensor_map": layout.flat(),
                "tensor_shape": layout.expanded(item.shape)}
        whole = {"current_stage": 1 if self.merged else 2,
                 "parallel_strategy_item": nodes, "parallel_layout_item": params}
        if self.merged:
            return json.dumps(whole).encode()
        return json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()


def read_fixture(path, shapes):
    """A compiler's protobuf strategy file; shapes: name -> full shape (protobuf has none)."""
    from mindspore.train import node_strategy_pb2 as pb
    parsed = pb.ParallelStrategyMap()
    with open(path, "rb") as f:
        parsed.ParseFromString(f.read())
    items = []
    merged = any("-" in e.param_name for e in parsed.parallel_layout_item)
    for entry in parsed.parallel_layout_item:
        stage, _, name = entry.param_name.rpartition("-")
        body = entry.parallel_layouts
        dev = list(body.dev_matrix[0].dim)
        nested = len(body.tensor_map) > 1
        if nested:
            axes = [[d for d in m.dim if d != -1] for m in body.tensor_map if m.dim]
        else:
            axes = list(body.tensor_map[0].dim)
        layout = Layout(dev, axes, body.opt_weight_shard_size, nested, body.opt_weight_shard_step)
        items.append(Item(name, layout, shapes(name), int(stage or 0)))
    out = Strategy(items, "ckpt", merged,
                   parsed.parallel_strategy_item[0].parallel_strategys.stage)
    out.fixture = path
    return out


def twin(strategy, path):
    """The same strategy from the compiler's other file (JSON of a protobuf one)."""
    out = Strategy(strategy.items, path.rsplit(".", 1)[1], strategy.merged, strategy.first_stage)
    out.fixture = path
    return out
