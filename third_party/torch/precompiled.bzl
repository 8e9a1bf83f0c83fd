"""precompiled_header: a header that GCC parses once for all sources that are compiled with it."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(ctx = ctx, cc_toolchain = toolchain)
    context = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context

    # A folder of its own, so that only this header is found through it.
    header = ctx.actions.declare_file("%s/%s" % (ctx.label.name, ctx.file.src.basename))
    ctx.actions.symlink(output = header, target_file = ctx.file.src)
    parsed = ctx.actions.declare_file(header.basename + ".gch", sibling = header)

    # GCC refuses a parsed header where options differ that change its meaning: the same rules as for sources make them.
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = parsed.path,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ["-x", "c++-header"],
        include_directories = context.includes,
        quote_include_directories = context.quote_includes,
        system_include_directories = context.system_includes,
        preprocessor_defines = context.defines,
        use_pic = True,
    )
    action = ACTION_NAMES.cpp_compile
    ctx.actions.run(
        mnemonic = "CppPrecompile",
        progress_message = "Parsing %s once for all" % ctx.file.src.short_path,
        executable = cc_common.get_tool_for_action(feature_configuration = features, action_name = action),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
        inputs = depset([header], transitive = [context.headers, toolchain.all_files]),
        outputs = [parsed],
    )
    return CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset([header, parsed]),
        system_includes = depset([header.dirname]),
    ))

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    doc = "A cc_library of one header, parsed. Sources get it by `-include` and its name as their first option.",
    attrs = {
        "src": attr.label(allow_single_file = [".h"], mandatory = True),
        "deps": attr.label_list(providers = [CcInfo], doc = "What the header includes."),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
