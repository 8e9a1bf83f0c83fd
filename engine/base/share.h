// Finds the files that are installed with the program (models, documents, data, its own shared
// libraries), and the libraries of the LibTorch that the user names.
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

/// The paths where a shared library of Strata's own may be, best first: the one in the environment
/// variable `variable` alone if that is set; otherwise beside the program, as in a package, and
/// then where Bazel puts `in_workspace`. Files need not exist.
std::vector<std::string> LibraryPlaces(const char* variable, const std::string& in_workspace);

/// The path of a library in the LibTorch that $LIBTORCH names, in its torch/lib/ or else its lib/;
/// "" if the variable is not set. The file may not exist: the caller, which loads it, reports that.
std::string TorchLibrary(const std::string& name);

}  // namespace strata
