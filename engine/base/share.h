// What comes with the program: models, documents, data. And the LibTorch that the user names.
#pragma once

#include <string>
#include <vector>

namespace strata {

/// The path of a file or folder that comes with the program, "models/digits.lua", or "" where there
/// is none. It is looked for in $STRATA_SHARE, in share/ beside the program's folder, as in a
/// package, and among the program's Bazel runfiles.
std::string SharedPath(const std::string& name);

/// The names of the models that come with the program, sorted: "alexnet", "bert", ...
std::vector<std::string> SharedModels();

/// The library in the LibTorch that $LIBTORCH names, which has it in lib/ or in torch/lib/; ""
/// where the variable is not set. The file may be missing: whoever loads it says so.
std::string TorchLibrary(const std::string& name);

}  // namespace strata
