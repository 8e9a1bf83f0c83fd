"""What the set-up puts into the shared cache, as repositories: LibTorch, the UCI digits, others' Python packages."""

_CACHE_VARIABLES = ["HOME", "STRATA_CACHE", "XDG_CACHE_HOME"]

def _path_from(ctx, script, pins):
    """The path that a script of tools/ prints, which installs what is not there yet."""
    ctx.path(pins)  # Other pins, another path.
    result = ctx.execute([ctx.path(script)], timeout = 3600)
    if result.return_code:
        fail("%s failed:\n%s" % (script, result.stderr))
    return ctx.path(result.stdout.strip())

def _nvidia_folders(torch, kind):
    """The folders nvidia/*/KIND beside torch, where the wheels keep CUDA, NCCL and their headers."""
    nvidia = torch.dirname.get_child("nvidia")
    if not nvidia.exists:
        return []
    folders = [package.get_child(kind) for package in nvidia.readdir()]
    return [folder for folder in folders if folder.exists]

def _libtorch_impl(ctx):
    torch = _path_from(ctx, Label("//tools:libtorch"), Label("//tools:pins/wheels.txt"))
    lib = torch.get_child("lib")
    ctx.symlink(torch.get_child("include"), "torch")
    cuda_includes = []
    for folder in _nvidia_folders(torch, "include"):
        link = "nvidia/" + folder.dirname.basename
        ctx.symlink(folder, link)
        cuda_includes.append(link)
        if folder.get_child("cccl").exists:
            cuda_includes.append(link + "/cccl")

    # A LibTorch for CUDA that came without CUDA's headers serves as one for CPUs.
    has_cuda = lib.get_child("libtorch_cuda.so").exists and bool(cuda_includes)
    cuda_linkopts = [
        option % folder
        for folder in _nvidia_folders(torch, "lib")
        for option in ("-L'%s'", "-Wl,-rpath,'%s'")
    ]
    ctx.file("config.bzl", "HAS_CUDA = %r\n" % has_cuda)
    ctx.template("BUILD", Label("//third_party:libtorch.BUILD.tpl"), {
        "%{torch_lib}": str(lib),
        "%{cuda_includes}": repr(cuda_includes),
        "%{cuda_compatible_with}": repr([] if has_cuda else ["@platforms//:incompatible"]),
        "%{cuda_linkopts}": repr(cuda_linkopts),
    })

libtorch_repository = repository_rule(
    implementation = _libtorch_impl,
    doc = "Targets torch_cpu, c10d and torch_cuda, see libtorch.BUILD.tpl; HAS_CUDA in config.bzl.",
    environ = _CACHE_VARIABLES + ["LIBTORCH"],
    local = True,
)

def _arrow_impl(ctx):
    folder = _path_from(ctx, Label("//tools:arrow"), Label("//tools:pins/arrow.txt"))
    package = folder.get_child("pyarrow")
    ctx.symlink(package.get_child("include"), "include")
    ctx.file("folder.txt", str(folder) + "\n")
    ctx.template("BUILD", Label("//third_party:arrow.BUILD.tpl"), {"%{arrow}": str(package)})

arrow_repository = repository_rule(
    implementation = _arrow_impl,
    doc = "Target arrow, see arrow.BUILD.tpl; folder.txt: where pyarrow's Python code is, for tests.",
    environ = _CACHE_VARIABLES,
    local = True,
)

def _digits_impl(ctx):
    file = _path_from(ctx, Label("//tools:digits"), Label("//tools:pins/digits.txt"))
    ctx.symlink(file, "data/digits.csv")
    ctx.file("BUILD", "exports_files([\"data/digits.csv\"])\n")

digits_repository = repository_rule(
    implementation = _digits_impl,
    doc = "The file data/digits.csv, so that a test may take the repository for the cache folder.",
    environ = _CACHE_VARIABLES,
    local = True,
)

def _folder_for_tests(ctx, name, script, pins):
    """Writes folder.txt, what a script of tools/ prints, and whether there is one: without it, the build goes on."""
    for file in pins:
        ctx.path(file)
    result = ctx.execute([ctx.path(script)], timeout = 3600)
    if result.return_code:
        # buildifier: disable=print
        print("no test compares with %s: %s" % (name, result.stderr))
    ctx.file("folder.txt", result.stdout)
    ctx.file("BUILD", "exports_files([\"folder.txt\"])\n")
    return result.return_code == 0

def _pytorch_impl(ctx):
    pins = [Label("//tools:pins/wheels.txt"), Label("//tools:peers/requirements.txt")]
    is_there = _folder_for_tests(ctx, "PyTorch", Label("//tools:pytorch"), pins)
    compatible_with = [] if is_there else ["@platforms//:incompatible"]
    ctx.file("config.bzl", "PYTORCH_COMPATIBLE_WITH = %r\n" % compatible_with)

pytorch_repository = repository_rule(
    implementation = _pytorch_impl,
    doc = "folder.txt: where PyTorch's Python code is; PYTORCH_COMPATIBLE_WITH for tests that need it.",
    environ = _CACHE_VARIABLES + ["LIBTORCH"],
    local = True,
)

def _peft_impl(ctx):
    pins = [Label("//tools:pins/%s.txt" % name) for name in ["peft", "readers", "wheels"]]
    pins.append(Label("//tools:peers/requirements.txt"))
    is_there = _folder_for_tests(ctx, "PEFT", Label("//tools:peft"), pins)
    compatible_with = [] if is_there else ["@platforms//:incompatible"]
    ctx.file("config.bzl", "PEFT_COMPATIBLE_WITH = %r\n" % compatible_with)

peft_repository = repository_rule(
    implementation = _peft_impl,
    doc = "folder.txt: where transformers and PEFT are; PEFT_COMPATIBLE_WITH for tests that need them.",
    environ = _CACHE_VARIABLES,
    local = True,
)

def _readers_impl(ctx):
    _folder_for_tests(ctx, "others' readers", Label("//tools:readers"), [Label("//tools:pins/readers.txt")])

readers_repository = repository_rule(
    implementation = _readers_impl,
    doc = "folder.txt: where the Python packages are that read what Strata writes; empty where they are not.",
    environ = _CACHE_VARIABLES,
    local = True,
)
