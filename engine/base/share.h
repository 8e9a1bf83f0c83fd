// Finds the files that are installed with the program (models, documents, data), and the libraries
// of the LibTorch that the user names.
#pragma once

#include <string>
#include <vector>

namespace strata {

/// The path of a file or folder that is installed with the program, such as "models/digits.lua"; ""
/// if it does not exist. It is looked for in $STRATA_SHARE alone if that is set; otherwise in
/// share/ beside the program's folder, as in a package, and then among the program's Bazel
/// runfiles.
std::string SharedPath(const std::string& name);

/// The names of the models that come with the program, sorted: "alexnet", "bert", ...
std::vector<std::string> SharedModels();

/// The path of a library in the LibTorch that $LIBTORCH names, in its torch/lib/ or else its lib/;
/// "" if the variable is not set. The file may not exist: the caller, which loads it, reports that.
std::string TorchLibrary(const std::string& name);

}  // namespace strata
