"""The part of rules_cc that Bazel 4's own repositories load: its native rules under their names.

Debian's copy of rules_cc is made for a newer Bazel.
"""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
fdo_prefetch_hints = native.fdo_prefetch_hints
fdo_profile = native.fdo_profile
objc_import = native.objc_import
objc_library = native.objc_library

def _no_flag_impl(_ctx):
    return []

compiler_flag = rule(implementation = _no_flag_impl)
