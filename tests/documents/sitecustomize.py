"""PyTorch without its compiler, for Python with this folder in PYTHONPATH: the optimizers and transformers would load it,
and it needs packages that are not pinned. Decorators of torch._dynamo give the function itself.
"""

import builtins, sys, types

_import = builtins.__import__


class _Dynamo(types.ModuleType):
    __path__ = [folder + "/torch/_dynamo" for folder in sys.path]
    eval_frame = types.SimpleNamespace(OptimizedModule=type("OptimizedModule", (), {}))

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda function=None, *_, **__: function or (lambda it: it)


sys.modules["torch._dynamo"] = _Dynamo("torch._dynamo")


def _with_stub(*arguments, **options):
    module = _import(*arguments, **options)
    if "torch" in sys.modules:
        sys.modules["torch"].__dict__.setdefault("_dynamo", sys.modules["torch._dynamo"])
    return module


builtins.__import__ = _with_stub
