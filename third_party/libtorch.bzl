"""LibTorch as a repository: $LIBTORCH, or the pinned wheels, installed by tools/libtorch."""

def _sibling_folders(torch, kind):
    """The folders nvidia/*/KIND beside torch, where the wheels keep CUDA, NCCL and their headers."""
    nvidia = torch.dirname.get_child("nvidia")
    if not nvidia.exists:
        return []
    folders = [package.get_child(kind) for package in nvidia.readdir()]
    return [folder for folder in folders if folder.exists]

def _libtorch_impl(ctx):
    script = ctx.path(Label("//tools:libtorch"))
    ctx.path(Label("//tools:wheels.txt"))  # Another set of pins is another LibTorch.
    found = ctx.execute([script], timeout = 3600)
    if found.return_code:
        fail("tools/libtorch found no LibTorch:\n" + found.stderr)
    torch = ctx.path(found.stdout.strip())

    ctx.symlink(torch.get_child("include"), "torch")
    cuda_includes = []
    for folder in _sibling_folders(torch, "include"):
        link = "nvidia/" + folder.dirname.basename
        ctx.symlink(folder, link)
        cuda_includes.append(link)

    has_cuda = torch.get_child("lib").get_child("libtorch_cuda.so").exists
    ctx.file("config.bzl", "HAS_CUDA = %r\n" % has_cuda)
    ctx.template("BUILD", Label("//third_party:libtorch.BUILD.tpl"), {
        "%{torch_lib}": str(torch.get_child("lib")),
        "%{cuda_includes}": repr(cuda_includes),
        "%{cuda_compatible_with}": repr([] if has_cuda else ["@platforms//:incompatible"]),
        "%{cuda_rpaths}": repr([
            option
            for folder in _sibling_folders(torch, "lib")
            for option in ("-L%s" % folder, "-Wl,-rpath,%s" % folder)
        ]),
    })

libtorch_repository = repository_rule(
    implementation = _libtorch_impl,
    doc = "Targets torch_cpu, c10d and torch_cuda, see libtorch.BUILD.tpl; HAS_CUDA in config.bzl.",
    environ = ["HOME", "LIBTORCH", "STRATA_CACHE", "XDG_CACHE_HOME"],
    local = True,
)
