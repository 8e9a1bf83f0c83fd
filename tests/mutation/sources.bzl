"""The sources of targets and of all that they stand on, for a test to read."""

_Sources = provider(fields = ["files"])

def _collect_impl(_target, ctx):
    own = []
    for attribute in ["srcs", "hdrs", "textual_hdrs"]:
        own += getattr(ctx.rule.files, attribute, [])
    below = [dep[_Sources].files for dep in getattr(ctx.rule.attr, "deps", []) if _Sources in dep]
    ours = [file for file in own if file.is_source and not file.short_path.startswith("../")]
    return [_Sources(files = depset(ours, transitive = below))]

_collect = aspect(
    implementation = _collect_impl,
    attr_aspects = ["deps"],
)

def _sources_impl(ctx):
    files = depset(transitive = [dep[_Sources].files for dep in ctx.attr.deps])
    return [DefaultInfo(runfiles = ctx.runfiles(transitive_files = files))]

sources = rule(
    implementation = _sources_impl,
    attrs = {"deps": attr.label_list(aspects = [_collect])},
)
