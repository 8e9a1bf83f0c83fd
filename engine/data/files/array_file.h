// Arrays in files: .npy and .npz (NumPy), .safetensors, and IDX (MNIST). If the file holds the
// elements uncompressed, they are not copied: the file stays mapped.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fields/tensor_spec.h"

namespace strata::data {

/// An array in row-major order. Copies share its bytes.
struct Array {
  std::string name;  ///< "" if the file has a single array
  TensorSpec spec;
  const std::byte* bytes = nullptr;
  /// Keeps the bytes alive: a mapped file, or a string.
  std::shared_ptr<const void> owner;
};

/// All arrays of a file. The format is determined by the content, not by the name. Throws
/// WorldError that names the file, the array and the reason: for files that are cut off or of
/// another format, for dtypes that Strata lacks, for big-endian numbers, and for Fortran's order.
std::vector<Array> ReadArrays(const std::string& path);
/// The only array of a file. Throws WorldError if there are several.
Array ReadArray(const std::string& path);
/// The array with this name. Throws WorldError with the nearest name if there is none.
Array ReadArray(const std::string& path, const std::string& name);

/// The array of a .npy file that lies in memory; its bytes are those given. `where` begins errors.
Array ReadNpy(std::string_view bytes, const std::string& where);

/// The header of a .npy file for an array with this spec; the elements follow it. It is at least
/// `least` bytes long, so that a caller can reserve room for it before the shape is known.
std::string NpyHeader(const TensorSpec& spec, size_t least = 0);
/// Writes a .npy file for one array without a name, otherwise a .safetensors file. Replaces a file
/// that exists, at once, after everything is written. Throws WorldError with the path.
void WriteArrays(const std::string& path, const std::vector<Array>& arrays);

}  // namespace strata::data
