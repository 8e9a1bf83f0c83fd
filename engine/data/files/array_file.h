// Arrays in files: .npy and .npz (NumPy), .safetensors, and IDX (MNIST). Nothing is copied where
// the file holds the bytes as they are: they stay mapped.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/fields/tensor_spec.h"

namespace strata::data {

/// An array in row-major order. Copies share its bytes.
struct Array {
  std::string name;  ///< "" in a file of one array
  TensorSpec spec;
  const std::byte* bytes = nullptr;
  std::shared_ptr<const void> owner;  ///< of the bytes: a mapped file, or a string
};

/// All arrays of a file, by its content: magic bytes, not the name's end, tell the format. Throws
/// WorldError that names the file, the array and what is wrong, for files that are cut off or no
/// such file, for dtypes that Strata lacks, for big-endian numbers and Fortran's order.
std::vector<Array> ReadArrays(const std::string& path);
/// The only array of a file.
Array ReadArray(const std::string& path);
/// The array of this name. The error names the nearest one.
Array ReadArray(const std::string& path, const std::string& name);

/// The header of a .npy file of this array; its bytes follow. At least `least` bytes long, where
/// one is left room before the shape is known.
std::string NpyHeader(const TensorSpec& spec, size_t least = 0);
/// Writes a .npy file, or, with names, a .safetensors file, which replaces one that is there.
/// Throws WorldError with the path.
void WriteArrays(const std::string& path, const std::vector<Array>& arrays);

}  // namespace strata::data
