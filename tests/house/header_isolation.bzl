"""A source file that includes every header of the given libraries and of all that they stand on."""

def _include_all_impl(ctx):
    headers = depset(transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps])
    paths = [h.short_path for h in headers.to_list() if h.extension == "h"]
    own = sorted([path for path in paths if not path.startswith("../")])
    ctx.actions.write(ctx.outputs.out, "".join(["#include \"%s\"\n" % path for path in own]))

include_all = rule(
    implementation = _include_all_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "out": attr.output(mandatory = True),
    },
)
