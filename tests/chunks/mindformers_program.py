# SPDX-License-Identifier: Apache-2.0
"""The checkpoint package of a real MindSpore Transformers, imported without all that a training needs.

Its own code makes the metadata and reads it again. Only what it asks of a cluster is answered here: how
many ranks there are, which one this is, and the tensors that a rank has.
"""
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
from unittest import mock

VERSIONS = ("2.0.0", "2.1.0")


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules whose names are whatever is asked for: those of training, and of other packages, but for the KNOWN ones."""

    def __init__(self, *known):
        self.known = known

    def find_spec(self, name, path=None, target=None):
        if name.startswith(self.known) or name.split(".")[0] not in ("mindformers", "hyper_parallel"):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: mock.MagicMock(name=name)
        return module

    def exec_module(self, module):
        pass


def package(name, folder):
    """A package whose __init__ is not run."""
    module = types.ModuleType(name)
    module.__path__ = [folder]
    sys.modules[name] = module


class Program:
    """One version; several can be there at once, as each keeps the modules that it imported."""

    def __init__(self, folder, version):
        self.version = version
        self.folder = os.path.join(folder, version, "mindformers")
        if not os.path.isdir(self.folder):
            raise FileNotFoundError(f"there is no {self.folder}; try: scripts/test mindformers-packages")
        for name in [n for n in sys.modules if n.split(".")[0] in ("mindformers", "hyper_parallel")]:
            del sys.modules[name]
        finder = Stubs("mindformers.checkpoint.")
        sys.meta_path.insert(0, finder)
        try:
            package("mindformers", self.folder)
            package("mindformers.checkpoint", os.path.join(self.folder, "checkpoint"))
            for name in ("utils", "metadata", "sharded_tensor", "reshard", "fully_parallel", "checkpoint"):
                setattr(self, name, importlib.import_module(f"mindformers.checkpoint.{name}"))
        finally:
            sys.meta_path.remove(finder)

    @contextlib.contextmanager
    def on(self, rank, ranks):
        """What follows runs as RANK of RANKS."""
        answers = {"get_real_rank": lambda: rank, "get_real_group_size": lambda: ranks,
                   "get_group_size": lambda: ranks, "set_safe_mode_for_file_or_dir": lambda path: None}
        with contextlib.ExitStack() as stack:
            for module in (self.utils, self.metadata, self.sharded_tensor, self.reshard,
                           self.fully_parallel, self.checkpoint):
                for name, answer in answers.items():
                    if hasattr(module, name):
                        stack.enter_context(mock.patch.object(module, name, answer))
            adapter = self.fully_parallel.LayoutAdapter
            stack.enter_context(mock.patch.object(adapter, "is_pynative_mode", lambda: False))
            stack.enter_context(mock.patch.object(adapter, "preprocess_params", lambda net: net))
            yield

    def shards(self, rank, infos):
        """The ShardedTensors of RANK; INFOS: name -> [Layout or None, dtype, full shape]."""
        return self.sharded_tensor.get_sharded_tensor_from_strategy_metadata(infos, rank) or {}

    def save_full(self, folder, metas, prefix, model_names):
        """metadata.json of a save with redundancy, by the ShardedTensors of all ranks."""
        with self.on(0, len(metas)):
            files = self.metadata.get_total_params_file_mapping_info(metas, prefix, model_names)
            self.metadata.save_metadata(metas, files, os.path.join(folder, "metadata.json"))

    def save_balanced(self, root, iteration, metas, prefix, kinds, write):
        """A save without redundancy. KINDS: [(kind, names)]; write(path, rank, names) saves a file."""
        save = self.balanced_2_1 if hasattr(self.fully_parallel, "save_balanced_metadata") else self.balanced_2_0
        save(root, iteration, metas, prefix, [(self.utils.FileType(kind), names) for kind, names in kinds], write)

    def balanced_2_0(self, root, iteration, metas, prefix, kinds, write):
        """As save_checkpoint of 2.0.0 does it: metadata.json of the model, then with the optimizer."""
        module = self.fully_parallel
        everything = lambda network, keep: {  # noqa: E731 - it stands in for a function
            rank: {n: m for n, m in named.items() if keep(n)} for rank, named in metas.items()}
        for kind, names in kinds:
            keep = names.__contains__
            with mock.patch.object(module, "get_all_sharded_tensor", everything):
                owners = [r for r, held in module.apply_balance_shard_strategy(None, keep).items() if held]
                for rank in sorted({0, *owners}, reverse=True):
                    saver = lambda net, path, choice_func, rank=rank, **more: write(  # noqa: E731
                        path + ".safetensors", rank, list(filter(choice_func, metas[rank])))
                    with self.on(rank, len(metas)), mock.patch.object(module, "save_checkpoint", saver):
                        strategy = module.BalancedSaveStrategy(None, prefix, False, root, keep, kind)
                        if rank in owners:
                            strategy.save(iteration)
                        else:  # where 2.0.0 itself fails, since the rank has no file
                            strategy.get_total_files()
                            strategy._save_metadata(strategy.apply_saving_parallelization(), iteration)

    def balanced_2_1(self, root, iteration, metas, prefix, kinds, write):
        module, plans = self.fully_parallel, []
        with self.on(0, len(metas)):
            for kind, names in kinds:
                held = {r: {n: m for n, m in named.items() if n in names} for r, named in metas.items()}
                payloads, assignment = module._compute_balanced_assignment_on_rank0(held, len(metas))
                written = {}
                for rank, (_, _, file_id, files, _) in enumerate(payloads):
                    shards = assignment.get(rank, {})
                    written[rank] = {self.utils._reverse_sharded_tensor_shard_id(s)[0] for s in shards}
                    if file_id is not None:
                        folder = self.utils.get_checkpoint_iter_dir(root, iteration)
                        path = self.utils.get_checkpoint_name(folder, prefix, file_id, files, kind)
                        write(path + ".safetensors", rank, [n for n in metas[rank] if n in written[rank]])
                plan = module.BalancedShardPlan(total_files_num=len(assignment), full_assignment=assignment)
                plans.append((plan, kind, written))
            module.save_balanced_metadata(root, iteration, prefix, plans, metas)

    def file_name(self, prefix, number, count, kind):
        name = self.utils.get_checkpoint_name(None, prefix, number, count, self.utils.FileType(kind))
        return name + ".safetensors"

    def save_common(self, path, **values):
        with self.on(0, 1):
            known = self.checkpoint.CommonInfo.__dataclass_fields__
            info = self.checkpoint.CommonInfo(**{k: v for k, v in values.items() if k in known})
            info.save_common(path)

    def load(self, folder, rank, ranks, infos):
        """What this rank's training would get from the folder: name -> Parameter."""
        with self.on(rank, ranks):
            metas, files = self.metadata.get_metadata_of_checkpoint(folder)
            loader = self.reshard.ReshardLoader(folder, self.shards(rank, infos), metas, files)
            return loader.load()

    def resumed(self, folder, infos):
        """What one card's training resumes with, by all of load_checkpoint but the network: name -> Parameter."""
        module, got = self.checkpoint, {}
        take = lambda network, state, optimizer, **more: got.update(state)  # noqa: E731
        patches = {"check_the_param_for_load_ckpt": lambda *_: None, "load_parameters": take,
                   "get_sharded_tensor_from_cell": lambda *_: self.shards(0, infos)}
        with self.on(0, 1), contextlib.ExitStack() as stack:
            for name, answer in patches.items():
                stack.enter_context(mock.patch.object(module, name, answer))
            module.load_checkpoint(folder, mock.MagicMock(), mock.MagicMock())
        return got

    def areas(self, folder, name, layout, rank):
        """{source rank: the part of the whole tensor that its slice gives to RANK of LAYOUT}."""
        metas, _ = self.metadata.load_metadata(os.path.join(folder, "metadata.json"))
        meta = metas[name][0]
        handler = self.reshard.ReshardHandler(name, meta.global_shape, meta.layout, layout, rank)
        handler.infer_all_tensor_offset()
        return handler.global_union_area_map
